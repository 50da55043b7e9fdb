//! Memory of this machine: how much is available, and how much the descendants of a process use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use jobs::bytes::ByteSize;

/// Returns the bytes that are available without swapping, by the kernel's estimate
/// (`MemAvailable`).
pub(super) fn available() -> Option<ByteSize> {
    kib(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:").map(ByteSize)
}

/// Returns the memory in bytes of all descendants of `ancestor`, without `ancestor` itself. Shared
/// memory counts proportionally (`Pss`) if the kernel reports that, otherwise in full (`VmRSS`).
pub(super) fn below(ancestor: u32) -> u64 {
    descendants(ancestor)
        .into_iter()
        .filter_map(of_process)
        .sum()
}

fn of_process(pid: u32) -> Option<u64> {
    let shared_in_parts = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok();
    shared_in_parts
        .and_then(|text| kib(&text, "Pss:"))
        .or_else(|| {
            kib(
                &fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
                "VmRSS:",
            )
        })
}

/// Returns the number of KiB after `name`, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

fn descendants(ancestor: u32) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(parent) = parent(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut left) = (BTreeSet::new(), vec![ancestor]);
    while let Some(pid) = left.pop() {
        let own = children.remove(&pid).unwrap_or_default();
        left.extend(&own);
        found.extend(own);
    }
    found
}

/// Parses the parent from a line of `/proc/<pid>/stat`; the name before it may contain blanks and
/// brackets.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        assert_eq!(
            kib("Rss:  8 kB\nPss:                 12 kB\n", "Pss:"),
            Some(12 << 10)
        );
        assert_eq!(kib("Pss: 12\n", "Pss:"), None);
        assert_eq!(parent("7 (a ) b) S 4 7 7 0"), Some(4));
        assert!(available().is_some_and(|bytes| bytes.0 > 0));
    }

    #[test]
    fn a_grandchild_counts_and_the_ancestor_does_not() {
        // The shell waits for `cat`, which is the shell's child and this process's grandchild.
        let mut shell = Command::new("/bin/sh")
            .args(["-c", "cat; true"])
            .stdin(Stdio::piped())
            .spawn()
            .expect("it starts");
        let shell_alone = descendants(std::process::id()).contains(&shell.id());
        rig::wait::until("the memory of `cat`", || below(shell.id()) > 4096);
        let (cat, both) = (below(shell.id()), descendants(shell.id()).len());
        drop(shell.stdin.take());
        shell.wait().expect("it ends");
        assert!(
            shell_alone && cat > 4096 && both == 1,
            "{cat} bytes of {both} processes"
        );
        assert_eq!(below(shell.id()), 0);
    }
}
