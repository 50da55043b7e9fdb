//! The stacks of running processes, as evidence of what they wait for.
//!
//! ```text
//! capture ─► Captured: registers, stack memory, wait channels   (the process stands still, ~1 ms)
//!    └► trace ─► Trace: frames with names, native and Python    (the process runs again)
//! ```
//! Neither a captured process nor its files are trusted: every length is limited.

#![forbid(unsafe_code)]

mod capture;
mod facts;
mod native;
mod trace;

use std::thread;

pub use trace::{Frame, Thread, Trace};

use crate::capture::{Captured, STOP_TIME, capture};
use crate::native::Files;

/// Returns the stacks of these processes, in their order. They stand still one after the other; then
/// it takes up to a few seconds, mostly to read symbols of libraries.
///
/// A parent that waits for them meanwhile has to expect that they are stopped.
pub fn traces(pids: &[i32]) -> Vec<Trace> {
    let captured: Vec<Captured> = in_a_thread_that_ends(|| {
        let captured = pids.iter().map(|pid| capture(*pid, STOP_TIME));
        captured.collect()
    });
    let mut files = Files::default();
    captured
        .iter()
        .map(|captured| trace::trace(captured, &mut files))
        .collect()
}

/// Does `work` in a thread of its own: with its end, threads that stop too late go on.
fn in_a_thread_that_ends<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let outcome = thread::scope(|scope| scope.spawn(work).join());
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_stops_too_late_goes_on_when_its_capture_has_ended() {
        let mut child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("sh starts");
        let pid = child.id().cast_signed();
        in_a_thread_that_ends(|| capture(pid, Duration::ZERO));
        let goes_on = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            (status.contains("TracerPid:\t0\n") && status.contains("State:\tR")).then_some(())
        };
        rig::wait::until("the end of its capture", goes_on);
        child.kill().expect("it runs");
        child.wait().expect("it ends");
    }
}
