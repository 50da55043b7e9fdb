//! Limits on open files: the launcher raises its own to the maximum, and its ranks keep what the
//! launcher was given.
//!
//! A store for many ranks has one or two connections for each of them, and the usual soft limit is
//! 1024. Ranks keep the original limit: a program that calls `select` cannot use more, and other
//! programs close all descriptors up to their limit when they start.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Limits on the number of open files (`ulimit -n`); `u64::MAX` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimit {
    /// The limit in force (`ulimit -Sn`).
    pub soft: u64,
    /// The limit to which the process may raise it (`ulimit -Hn`).
    pub hard: u64,
}

impl FileLimit {
    /// Returns the limits of this process.
    pub fn current() -> Option<FileLimit> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
        Some(FileLimit { soft, hard })
    }

    /// Returns the same limits with the soft limit raised to the hard one.
    pub fn raised(self) -> FileLimit {
        FileLimit {
            soft: self.hard,
            ..self
        }
    }

    /// Sets the limits of this process.
    ///
    /// # Errors
    /// Returns an error if the hard limit is above that of the process or above `fs.nr_open`.
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
        assert_eq!(
            limit.raised(),
            FileLimit {
                soft: limit.hard,
                hard: limit.hard
            }
        );
        limit.apply().expect("they are what they are");
    }
}
