//! Detects whether the kernel's OOM killer was active, because the SIGKILL of a rank alone does not
//! tell its cause.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::node::control_group::{ControlGroups, number};

/// Time for which a kill explains failures: the kernel may end several ranks, one after the other.
const EXPLAINS: Duration = Duration::from_secs(5);

/// What is known of OOM kills since the launch began.
#[derive(Clone, Copy, Debug)]
pub struct OomKills {
    known: OomCounts,
    /// When new kills were last noticed, and what to say of them.
    noticed: Option<(SystemTime, &'static str)>,
}

/// Number of OOM kills at a moment.
#[derive(Clone, Copy, Debug)]
struct OomCounts {
    in_group: Option<u64>,
    on_machine: Option<u64>,
}

impl OomKills {
    /// Takes the current counts for old.
    pub fn now() -> OomKills {
        OomKills {
            known: OomCounts::now(),
            noticed: None,
        }
    }

    /// Returns what to append to "was killed by SIGKILL" for ranks that have failed at `now`. Kills
    /// before the last failure do not explain this one.
    pub fn hint(&mut self, now: SystemTime) -> &'static str {
        self.hint_of(OomCounts::now(), now)
    }

    fn hint_of(&mut self, counts: OomCounts, now: SystemTime) -> &'static str {
        if let Some(hint) = self.known.compare(&counts) {
            self.noticed = Some((now, hint));
        }
        self.known = counts;
        let since = |at| now.duration_since(at).unwrap_or_default();
        match self.noticed {
            Some((at, hint)) if since(at) <= EXPLAINS => hint,
            _ => "",
        }
    }
}

impl OomCounts {
    fn now() -> OomCounts {
        OomCounts {
            in_group: ControlGroups::of_this_process().oom_kills(),
            on_machine: number(
                &fs::read_to_string("/proc/vmstat").unwrap_or_default(),
                "oom_kill",
            ),
        }
    }

    fn compare(&self, now: &OomCounts) -> Option<&'static str> {
        if self.in_group < now.in_group {
            return Some(" (the kernel ended a process of this job for lack of memory)");
        }
        (self.on_machine < now.on_machine)
            .then_some(" (the kernel ended a process of this machine for lack of memory)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: OomCounts = OomCounts {
        in_group: Some(1),
        on_machine: Some(5),
    };

    const AFTER: OomCounts = OomCounts {
        in_group: Some(2),
        on_machine: Some(6),
    };

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn kills() -> OomKills {
        OomKills {
            known: BEFORE,
            noticed: None,
        }
    }

    #[test]
    fn a_new_kill_is_told_of_and_one_in_the_job_first() {
        let elsewhere = OomCounts {
            in_group: Some(1),
            ..AFTER
        };
        assert!(kills().hint_of(AFTER, at(9)).contains("of this job"));
        let hint = kills().hint_of(elsewhere, at(9));
        assert!(hint.contains("of this machine"), "{hint}");
        assert_eq!(kills().hint_of(BEFORE, at(9)), "");
    }

    #[test]
    fn a_kill_explains_all_ranks_that_it_ended_and_none_that_was_killed_hours_later() {
        let mut kills = kills();
        assert!(kills.hint_of(AFTER, at(100)).contains("of this job"));
        assert!(kills.hint_of(AFTER, at(101)).contains("of this job"));
        assert_eq!(kills.hint_of(AFTER, at(7300)), "");
    }
}
