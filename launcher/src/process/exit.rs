//! The exit status of a process.

use std::fmt::{Display, Formatter};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use crate::signals::names::signal_name;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code, in `0..=255`.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// Exit codes of a shell, an interpreter or the dynamic loader that could not run a program: the
/// program is not executable (126), or it or a library that it needs was not found (127).
pub const CANNOT_RUN: [i32; 2] = [126, 127];

impl Exit {
    /// Returns whether the process exited with code 0.
    pub fn is_success(self) -> bool {
        self == Exit::Code(0)
    }

    /// Returns the usual meaning of this exit, to be appended to it; empty if the exit needs no
    /// explanation.
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Code(126) => " (126: a program may not be executed)",
            Exit::Code(127) => " (127: a program, or a library that it needs, was not found)",
            Exit::Code(_) | Exit::Signal(_) => "",
        }
    }

    /// Returns Python's `returncode`: the exit code, or the signal as a negative number.
    pub fn returncode(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => -signal,
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Exit {
        // A process that was waited for has either a code or a signal; the default is for a status
        // made by hand.
        status.code().map_or_else(
            || Exit::Signal(status.signal().unwrap_or(libc::SIGKILL)),
            Exit::Code,
        )
    }
}

impl Display for Exit {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => write!(f, "was killed by {}", signal_name(*signal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_a_negative_returncode() {
        assert_eq!(
            Exit::from(ExitStatus::from_raw(libc::SIGKILL)).returncode(),
            -9
        );
        assert_eq!(Exit::from(ExitStatus::from_raw(7 << 8)).returncode(), 7);
    }

    #[test]
    fn an_exit_reads_as_a_sentence() {
        assert_eq!(Exit::Code(7).to_string(), "exited with code 7");
        assert_eq!(Exit::Signal(9).to_string(), "was killed by SIGKILL");
    }
}
