//! Reads the limits of the control groups (version 2) of this process: the lowest of the group and
//! all groups above it. Detects whether the kernel's OOM killer was active, because the SIGKILL of
//! a rank alone does not tell its cause.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The file with the memory that processes may use, in bytes.
pub(crate) const MEMORY: &str = "memory.max";

/// The file with the swap that processes may use, in bytes.
pub(crate) const SWAP: &str = "memory.swap.max";

/// The file with the number of processes and threads.
pub(crate) const PROCESSES: &str = "pids.max";

/// Time for which a kill explains failures: the kernel may end several ranks, one after the other.
const EXPLAINS: Duration = Duration::from_secs(5);

/// The control groups of a process.
#[derive(Clone, Debug)]
pub(crate) struct ControlGroups {
    /// Path of the group below the mount point.
    path: PathBuf,
    /// Where the groups are mounted.
    root: PathBuf,
}

impl ControlGroups {
    /// Returns those of this process.
    pub(crate) fn of_this_process() -> Self {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::new(&groups, Path::new("/sys/fs/cgroup"))
    }

    /// Takes the content of `/proc/self/cgroup`.
    pub(crate) fn new(groups: &str, root: &Path) -> Self {
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        Self {
            path: path.unwrap_or_default().into(),
            root: root.to_owned(),
        }
    }

    /// Returns the lowest limit, if there is one.
    pub(crate) fn limit(&self, file: &str) -> Option<u64> {
        let limits = self.texts(file);
        limits.filter_map(|text| text.trim().parse().ok()).min()
    }

    /// Returns how many CPUs' time the processes may use per second, if that is limited.
    pub(crate) fn cpus(&self) -> Option<f64> {
        let quotas = self.texts("cpu.max").filter_map(|text| {
            let (quota, period) = text.trim().split_once(' ')?;
            ratio(quota, period)
        });
        quotas.min_by(f64::total_cmp)
    }

    /// Returns the number of processes that the kernel has ended for lack of memory in this group
    /// and those below it.
    pub(crate) fn oom_kills(&self) -> Option<u64> {
        let events = fs::read_to_string(self.root.join(&self.path).join("memory.events")).ok()?;
        number(&events, "oom_kill")
    }

    /// Returns the contents of a file in the group and in those above it. In a container, the path
    /// may be that of the host; then only the mounted group is there.
    fn texts(&self, file: &str) -> impl Iterator<Item = String> {
        let groups = self.path.ancestors().map(|above| self.root.join(above));
        groups.filter_map(move |group| fs::read_to_string(group.join(file)).ok())
    }
}

/// Returns the number after `name` in lines of the form `name number`.
fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (found, number) = line.split_once(' ')?;
        (found == name).then(|| number.trim().parse().ok())?
    })
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// What to say of a process that the kernel ended, in the group of this process or elsewhere.
const HINTS: [&str; 2] = [
    " (the kernel ended a process of this job for lack of memory)",
    " (the kernel ended a process of this machine for lack of memory)",
];

/// What is known of OOM kills since the launch began.
#[derive(Clone, Copy, Debug)]
pub struct OomKills {
    /// Their numbers, in the group of this process and on the machine.
    known: [Option<u64>; 2],
    /// When new kills were last noticed, and what to say of them.
    noticed: Option<(SystemTime, &'static str)>,
}

impl OomKills {
    /// Takes the current counts for old.
    pub fn now() -> OomKills {
        OomKills {
            known: counts(),
            noticed: None,
        }
    }

    /// Returns what to append to "was killed by SIGKILL" for ranks that have failed at `now`. Kills
    /// before the last failure do not explain this one.
    pub fn hint(&mut self, now: SystemTime) -> &'static str {
        self.hint_of(counts(), now)
    }

    fn hint_of(&mut self, counts: [Option<u64>; 2], now: SystemTime) -> &'static str {
        let new = (0..2).find(|&place| self.known[place] < counts[place]);
        if let Some(place) = new {
            self.noticed = Some((now, HINTS[place]));
        }
        self.known = counts;
        let since = |at| now.duration_since(at).unwrap_or_default();
        match self.noticed {
            Some((at, hint)) if since(at) <= EXPLAINS => hint,
            _ => "",
        }
    }
}

fn counts() -> [Option<u64>; 2] {
    let machine = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    [
        ControlGroups::of_this_process().oom_kills(),
        number(&machine, "oom_kill"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::write;

    #[test]
    fn the_lowest_limit_above_a_group_counts() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "job/memory.max", "4294967296\n");
        write(root.path(), "job/step/memory.max", "max\n");
        write(root.path(), "job/cpu.max", "150000 100000\n");
        write(root.path(), "job/step/cpu.max", "max 100000\n");
        let groups = ControlGroups::new("0::/job/step\n", root.path());
        assert_eq!(groups.limit(MEMORY), Some(4 << 30));
        assert_eq!(groups.cpus(), Some(1.5));
        assert_eq!(groups.limit(PROCESSES), None);
    }

    #[test]
    fn the_count_is_read_by_its_whole_name() {
        let events = "oom 4\noom_kill 3\noom_group_kill 9\n";
        assert_eq!(number(events, "oom_kill"), Some(3));
        assert_eq!(number("oom 4\n", "oom_kill"), None);
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "job/memory.events", events);
        let groups = ControlGroups::new("0::/job\n", root.path());
        assert_eq!(groups.oom_kills(), Some(3));
    }

    #[test]
    fn in_a_container_the_mounted_group_counts() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "memory.max", "2147483648\n");
        let groups = ControlGroups::new("0::/docker/0123\n", root.path());
        assert_eq!(groups.limit(MEMORY), Some(2 << 30));
    }

    const BEFORE: [Option<u64>; 2] = [Some(1), Some(5)];
    const AFTER: [Option<u64>; 2] = [Some(2), Some(6)];

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
        let elsewhere = [BEFORE[0], AFTER[1]];
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
