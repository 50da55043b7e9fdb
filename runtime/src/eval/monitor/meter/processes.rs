//! The processes that this one has started (simulators and their displays), and their memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::versions::bytes_in;

/// Returns all descendants of the process `root`, without `others` and their descendants.
pub fn descendants(root: u32, others: &BTreeSet<u32>) -> BTreeSet<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents = pids.filter(|pid| !others.contains(pid)).filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parent(&stat)?))
    });
    below(root, parents)
}

/// Returns all descendants of `root`, given pairs of a process and its parent.
fn below(root: u32, parents: impl Iterator<Item = (u32, u32)>) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    parents.for_each(|(pid, parent)| children.entry(parent).or_default().push(pid));
    let (mut found, mut open) = (BTreeSet::new(), vec![root]);
    while let Some(pid) = open.pop() {
        let children = children.remove(&pid).unwrap_or_default().into_iter();
        open.extend(children.filter(|child| found.insert(*child)));
    }
    found
}

/// Returns the parent PID from the text of `/proc/PID/stat`, proc_pid_stat(5). The name before it
/// may contain spaces and parentheses.
fn parent(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the memory of the processes together in bytes. Pages that several share are divided
/// among them; a process that is gone counts 0.
pub fn memory_bytes(pids: &BTreeSet<u32>) -> u64 {
    pids.iter().filter_map(|pid| memory_of(*pid)).sum()
}

/// Returns `Pss` of `/proc/PID/smaps_rollup`, or `VmRSS` if that file cannot be read.
fn memory_of(pid: u32) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    bytes_in(&read("smaps_rollup"), "Pss:").or_else(|| bytes_in(&read("status"), "VmRSS:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_and_theirs_are_found_and_nobody_else() {
        let pairs = [(2, 1), (10, 2), (11, 10), (12, 11), (20, 1), (21, 20)];
        assert_eq!(below(10, pairs.into_iter()), BTreeSet::from([11, 12]));
        assert_eq!(below(21, pairs.into_iter()), BTreeSet::new());
        assert_eq!(
            below(5, [(5, 6), (6, 5)].into_iter()),
            BTreeSet::from([5, 6]),
            "a snapshot with a ring ends"
        );
    }

    #[test]
    fn a_name_with_brackets_does_not_hide_the_parent() {
        assert_eq!(parent("42 (a) b (c)) S 7 42 42 0 -1"), Some(7));
        assert_eq!(parent("42 (a"), None);
    }

    #[test]
    fn shared_pages_are_divided_where_the_kernel_tells() {
        let rollup = "55d0-7ffe ---p 00000000 00:00 0    [rollup]\nRss:            5000 kB\nPss:            1200 kB\n";
        assert_eq!(bytes_in(rollup, "Pss:"), Some(1200 * 1024));
        assert_eq!(bytes_in("", "Pss:"), None);
    }

    #[test]
    fn a_child_has_memory_as_long_as_it_lives() {
        // The child prints a line when it runs, and exits at the end of its standard input.
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let (own, id) = (std::process::id(), child.id());
        let (nobody, only) = (BTreeSet::new(), BTreeSet::from([id]));
        assert!(descendants(own, &nobody).contains(&id));
        assert!(!descendants(own, &only).contains(&id));
        assert!(memory_bytes(&only) > 0);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!descendants(own, &nobody).contains(&id));
        assert_eq!(memory_bytes(&only), 0);
    }
}
