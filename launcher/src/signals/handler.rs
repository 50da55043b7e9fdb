//! What happens in a signal handler itself, beside waking the event loop.
//!
//! SLURM sends SIGTERM to every process of a step, even to those in sessions of their own. A rank
//! that also got it from the launcher would begin to save its checkpoint a second time. `timeout`,
//! a script's trap or a user send it to the launcher only. So the handler keeps the sender.
//!
//! And until the launch looks at its signals, a second Ctrl-C ends the launcher: a driver or a file
//! server that hangs must not make the launcher one that only SIGKILL ends.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use signal_hook_registry::register_sigaction;

/// Name of the SLURM process that starts, signals and ends the tasks of a step on a node.
const STEP_DAEMON: &str = "slurmstepd";

/// In place of the pid of a sender: no SIGTERM has been received.
const NOBODY: i64 = -1;

/// The pid of the first process that sent SIGTERM.
static FIRST_SENDER: AtomicI64 = AtomicI64::new(NOBODY);

/// Whether SIGINT has been received.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether the launch looks at its signals.
static IS_LISTENING: AtomicBool = AtomicBool::new(false);

/// Installs the part of a signal's handler that is not the event loop's.
pub fn install(number: i32) -> io::Result<()> {
    match number {
        // SAFETY: the action is async-signal-safe: it reads the signal's own information, of which
        // every field is plain data, and an atomic number.
        libc::SIGTERM => unsafe {
            register_sigaction(number, |info| keep_sender(i64::from(info.si_pid())))
        },
        // SAFETY: the action is async-signal-safe: it uses atomic values and `_exit`.
        libc::SIGINT => unsafe { register_sigaction(number, |_| interrupted()) },
        _ => return Ok(()),
    }
    .map(drop)
}

fn keep_sender(pid: i64) {
    // Only the first one counts.
    let _ = FIRST_SENDER.compare_exchange(NOBODY, pid, Ordering::Relaxed, Ordering::Relaxed);
}

fn interrupted() {
    let is_second = IS_INTERRUPTED.swap(true, Ordering::Relaxed);
    if is_second && !IS_LISTENING.load(Ordering::Relaxed) {
        // SAFETY: `_exit` may be called in a handler, and does not return. No rank has been started.
        unsafe { libc::_exit(128 + libc::SIGINT) };
    }
}

/// Leaves further interrupts to the launch, which looks at its signals from now on.
pub fn listen() {
    IS_LISTENING.store(true, Ordering::Relaxed);
}

/// Returns whether the first SIGTERM came from SLURM.
pub fn is_from_slurm() -> bool {
    u32::try_from(FIRST_SENDER.load(Ordering::Relaxed)).is_ok_and(is_slurm)
}

/// Returns whether a process belongs to SLURM. A pid of 0 means that the sender is outside the
/// container of this launcher and its ranks.
fn is_slurm(pid: u32) -> bool {
    let is_step_daemon = |name: String| name.trim_end() == STEP_DAEMON;
    pid == 0 || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(is_step_daemon)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_slurm() {
        assert!(!is_slurm(std::process::id()) && is_slurm(0));
    }
}
