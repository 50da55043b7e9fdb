//! Runs a check in a thread, with a time limit.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::tools::doctor::diagnosis::Diagnosis;

/// A check that has not started.
pub(super) struct Check {
    /// Name in messages about the check itself.
    pub(super) name: String,
    /// What to do if it does not end in time.
    pub(super) if_it_hangs: &'static str,
    pub(super) examine: Box<dyn FnOnce() -> Vec<Diagnosis> + Send>,
}

impl Check {
    pub(super) fn new(
        name: impl Into<String>,
        if_it_hangs: &'static str,
        examine: impl FnOnce() -> Vec<Diagnosis> + Send + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            if_it_hangs,
            examine: Box::new(examine),
        }
    }
}

/// A check that is running. A thread that hangs is left behind and ends with the process.
pub(super) struct Running {
    name: String,
    if_it_hangs: &'static str,
    timeout: Duration,
    deadline: Instant,
    results: Receiver<Vec<Diagnosis>>,
}

impl Running {
    /// Starts a check, which may run for `timeout`.
    pub(super) fn start(check: Check, timeout: Duration) -> Self {
        let Check {
            name,
            if_it_hangs,
            examine,
        } = check;
        let (sender, results) = channel();
        let spawned = thread::Builder::new().name(name.clone()).spawn(move || {
            // The receiver is gone after the time limit.
            let _ = sender.send(examine());
        });
        // Without a thread, the channel is closed, which is told as a check that broke off.
        drop(spawned);
        Self {
            name,
            if_it_hangs,
            timeout,
            deadline: now() + timeout,
            results,
        }
    }

    /// Returns the name of the check.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the results at most `patience`; `None` if there are none yet and the time limit
    /// has not passed.
    pub(super) fn wait(&self, patience: Duration) -> Option<Vec<Diagnosis>> {
        let left = self.deadline.saturating_duration_since(now());
        match self.results.recv_timeout(left.min(patience)) {
            Ok(results) => Some(results),
            Err(RecvTimeoutError::Disconnected) => Some(vec![self.broke_off()]),
            Err(RecvTimeoutError::Timeout) if left > patience => None,
            Err(RecvTimeoutError::Timeout) => Some(vec![self.hangs()]),
        }
    }

    fn hangs(&self) -> Diagnosis {
        let found = format!("did not end within {} s", self.timeout.as_secs());
        Diagnosis::failed(&self.name, found, self.if_it_hangs)
    }

    fn broke_off(&self) -> Diagnosis {
        let found = "the check itself broke off";
        Diagnosis::failed(&self.name, found, "report this as an error of rrun")
    }
}

/// Returns the current time of the monotonic clock.
#[expect(
    clippy::disallowed_methods,
    reason = "time limits of checks of this machine"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::doctor::diagnosis::Health;

    const LONG: Duration = Duration::from_secs(60);

    fn running(
        timeout: Duration,
        examine: impl FnOnce() -> Vec<Diagnosis> + Send + 'static,
    ) -> Running {
        Running::start(Check::new("disk", "check the mount", examine), timeout)
    }

    #[test]
    fn the_results_of_a_check_are_returned() {
        let check = running(LONG, || vec![Diagnosis::ok("disk", "1 GiB")]);
        let results = check.wait(LONG).unwrap();
        assert_eq!(results, [Diagnosis::ok("disk", "1 GiB")]);
    }

    #[test]
    fn a_check_that_hangs_is_named_and_fails() {
        let (keep, hang) = channel::<()>();
        let timeout = Duration::from_millis(20);
        let check = running(timeout, move || {
            let _ = hang.recv();
            Vec::new()
        });
        let results = check.wait(LONG).unwrap();
        drop(keep);
        assert_eq!(results[0].health, Health::Failed);
        assert_eq!(results[0].name, "disk");
        assert_eq!(results[0].found, "did not end within 0 s");
        assert_eq!(results[0].remedy.as_deref(), Some("check the mount"));
    }

    #[test]
    fn before_the_time_limit_a_slow_check_has_no_results_yet() {
        let (keep, hang) = channel::<()>();
        let check = running(LONG, move || {
            let _ = hang.recv();
            vec![Diagnosis::ok("disk", "late")]
        });
        assert_eq!(check.wait(Duration::from_millis(5)), None);
        drop(keep);
        assert_eq!(check.wait(LONG).unwrap()[0].found, "late");
    }

    #[test]
    fn a_check_that_panics_fails() {
        let check = running(LONG, || panic!("as the test wants"));
        assert_eq!(check.wait(LONG).unwrap()[0].health, Health::Failed);
    }
}
