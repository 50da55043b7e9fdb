//! Calls that cannot be interrupted.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Runs `work` on a thread and returns its result, or `None` after `limit`, when the thread is left
/// behind: NCCL waits for a dead peer without an end.
pub fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, outcome) = mpsc::channel();
    let named = thread::Builder::new().name("rrun-nccl".to_owned());
    // After the limit the receiver is gone, and the result is dropped.
    named.spawn(move || drop(done.send(work()))).ok()?;
    outcome.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_ends_in_time_is_returned() {
        assert_eq!(within(Duration::from_secs(10), || 7), Some(7));
    }

    #[test]
    fn work_that_never_ends_is_left_behind() {
        let (_keep, forever) = mpsc::channel::<()>();
        assert_eq!(
            within(Duration::from_millis(20), move || forever.recv().is_ok()),
            None
        );
    }
}
