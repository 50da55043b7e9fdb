//! Detects whether the kernel's OOM killer was active, because the SIGKILL of a rank alone does not
//! tell its cause.

use std::fs;

/// Number of OOM kills when the launch began.
#[derive(Clone, Copy, Debug)]
pub struct OomKills {
    in_group: Option<u64>,
    on_machine: Option<u64>,
}

impl OomKills {
    /// Returns the current counts.
    pub fn now() -> OomKills {
        OomKills {
            in_group: in_group(),
            on_machine: on_machine(),
        }
    }

    /// Returns what to append to "was killed by SIGKILL".
    pub fn hint(&self) -> &'static str {
        self.compare(&OomKills::now())
    }

    fn compare(&self, now: &OomKills) -> &'static str {
        if self.in_group < now.in_group {
            return " (the kernel ended a process of this job for lack of memory)";
        }
        if self.on_machine < now.on_machine {
            return " (the kernel ended a process of this machine for lack of memory)";
        }
        ""
    }
}

/// Reads `memory.events` of this control group (version 2), which includes the groups below it.
fn in_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    field(
        &fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.events")).ok()?,
        "oom_kill",
    )
}

fn on_machine() -> Option<u64> {
    field(&fs::read_to_string("/proc/vmstat").ok()?, "oom_kill")
}

/// Returns the number after `name` in lines of the form `name number`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: OomKills = OomKills {
        in_group: Some(1),
        on_machine: Some(5),
    };

    #[test]
    fn the_count_is_read_by_its_whole_name() {
        assert_eq!(
            field("oom 4\noom_kill 3\noom_group_kill 9\n", "oom_kill"),
            Some(3)
        );
        assert_eq!(field("oom 4\n", "oom_kill"), None);
    }

    #[test]
    fn a_kill_in_the_job_is_told_of_first() {
        let now = OomKills {
            in_group: Some(2),
            on_machine: Some(6),
        };
        assert!(BEFORE.compare(&now).contains("of this job"));
        assert!(
            BEFORE
                .compare(&OomKills {
                    in_group: Some(1),
                    ..now
                })
                .contains("of this machine")
        );
    }

    #[test]
    fn without_a_new_kill_there_is_no_hint() {
        assert_eq!(BEFORE.compare(&BEFORE), "");
    }
}
