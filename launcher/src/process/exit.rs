//! How a process ended, and the resources that it used: CPU time and memory, including those of the
//! children it waited for.

use std::fmt::{Display, Formatter};

use serde::Serialize;

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

impl Display for Exit {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => write!(f, "was killed by {}", signal_name(*signal)),
        }
    }
}

/// The resources that a process used, as `getrusage(2)` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Usage {
    /// CPU time in user mode, in seconds.
    pub user_s: f64,
    /// CPU time in the kernel, in seconds.
    pub system_s: f64,
    /// Peak resident memory of the process or of one of its children, in bytes.
    pub max_rss: u64,
}

impl Usage {
    pub(crate) fn new(usage: &libc::rusage) -> Usage {
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        // `ru_maxrss` is in KiB.
        let max_rss = u64::try_from(usage.ru_maxrss).unwrap_or(0);
        let max_rss = max_rss.saturating_mul(1024);
        Usage {
            user_s: seconds(usage.ru_utime),
            system_s: seconds(usage.ru_stime),
            max_rss,
        }
    }
}

impl Display for Usage {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Usage {
            user_s,
            system_s,
            max_rss,
        } = self;
        let mib = max_rss / (1 << 20);
        write!(
            f,
            "{user_s:.2} s of CPU, {system_s:.2} s in the kernel, at most {mib} MiB of memory"
        )
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    use super::*;
    use crate::process::command::tests::{plan, start};
    use crate::process::pre_exec::ended;

    #[test]
    fn a_signal_is_a_negative_returncode() {
        assert_eq!(Exit::Signal(libc::SIGKILL).returncode(), -9);
        assert_eq!(Exit::Code(7).returncode(), 7);
    }

    #[test]
    fn an_exit_reads_as_a_sentence() {
        assert_eq!(Exit::Code(7).to_string(), "exited with code 7");
        assert_eq!(Exit::Signal(9).to_string(), "was killed by SIGKILL");
    }

    #[test]
    fn a_zombie_still_tells_what_it_used() {
        // Uses some CPU time and memory, in the shell itself and in a child.
        let work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; head -c 50000000 /dev/zero | tail -c 1 | wc > /dev/null";
        let rank = start(&plan(&["/bin/sh", "-c", work])).expect("/bin/sh starts");
        waitid(
            Id::Pid(rank.pid()),
            WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT,
        )
        .expect("our child");
        let (_, usage) = ended(rank.pid())
            .expect("not reaped yet")
            .expect("it has ended");
        assert!(
            usage.user_s + usage.system_s > 0.0 && usage.max_rss > 100_000,
            "{usage:?}"
        );
        rank.reap();
    }
}
