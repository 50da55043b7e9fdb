//! The resources that a rank used: CPU time and memory, including those of the children it waited
//! for.

use std::fmt::{Display, Formatter};

use serde::Serialize;

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

    use crate::process::command::OutputStream;
    use crate::process::command::tests::{plan, start};
    use crate::process::pre_exec::ended;

    #[test]
    fn a_zombie_still_tells_what_it_used() {
        // Uses some CPU time and memory, in the shell itself and in a child.
        let work = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; head -c 50000000 /dev/zero | tail -c 1 | wc";
        let rank =
            start(&plan(&["/bin/sh", "-c", work]), OutputStream::Null).expect("/bin/sh starts");
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
