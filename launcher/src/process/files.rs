//! How many files may be open: the launcher takes all that it can get, its ranks have what it was given.
//!
//! A store of many ranks has a connection or two for each of them, and the usual soft limit is 1024. Ranks keep it: a
//! program that calls `select` cannot have more, and others close all numbers up to their limit when they start.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Numbers of files that a process may have open (`ulimit -n`); `u64::MAX` if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// What counts (`ulimit -Sn`).
    pub soft: u64,
    /// What the process may raise it to (`ulimit -Hn`).
    pub hard: u64,
}

impl FileLimit {
    /// Those of this process.
    pub fn current() -> Option<FileLimit> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        Some(FileLimit { soft, hard })
    }

    /// The same with nothing left to raise.
    pub fn raised(self) -> FileLimit {
        FileLimit { soft: self.hard, ..self }
    }

    /// Makes them those of this process.
    ///
    /// # Errors
    /// A hard limit above that of the process, or above `fs.nr_open`.
    pub fn apply(self) -> nix::Result<()> {
        setrlimit(Resource::RLIMIT_NOFILE, self.soft, self.hard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_this_process_can_be_applied_again() {
        let limit = FileLimit::current().expect("Linux has limits");
        assert!(limit.soft > 3 && limit.soft <= limit.hard);
        assert_eq!(limit.raised(), FileLimit { soft: limit.hard, hard: limit.hard });
        limit.apply().expect("they are what they are");
    }
}
