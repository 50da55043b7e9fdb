//! Reads processes from `/proc`, see proc(5).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::time::Duration;

/// Bytes to read of `/proc/<pid>/stat`, in one system call. The fields that count end before this:
/// a name has 64 bytes at most, and a number 20.
const STAT: usize = 512;

/// Linux shows times in hundredths of a second on every architecture (`USER_HZ`).
const TICKS_PER_SECOND: u32 = 100;

/// A process of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// Name of its program, at most 15 bytes.
    pub name: String,
    /// Whether it is a zombie or ending.
    pub is_dead: bool,
    /// Pid of its parent.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its session.
    pub session: i32,
    /// CPU time that it has used, together with its children that have ended.
    pub cpu: Duration,
}

impl Process {
    /// Reads what `/proc/<pid>/stat` says; `None` if there is no such process.
    pub fn read(pid: i32) -> Option<Process> {
        let mut bytes = [0; STAT];
        let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
        let length = file.read(&mut bytes).ok()?;
        Process::parse(pid, &bytes[..length])
    }

    /// Parses `pid (name) state ppid pgrp session …`. The name may contain any byte, so it ends
    /// with the last `)`.
    fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
        let start = stat.iter().position(|&byte| byte == b'(')? + 1;
        let end = stat.iter().rposition(|&byte| byte == b')')?;
        let fields = std::str::from_utf8(&stat[end + 1..]).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
        let mut number = || fields.next()?.parse().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        // utime, stime, cutime and cstime are fields 14 to 17 of the manual page.
        let ticks = fields.skip(7).take(4);
        let ticks = ticks.filter_map(|ticks| ticks.parse().ok());
        let ticks = ticks.fold(0_u32, u32::saturating_add);
        Some(Process {
            pid,
            name: String::from_utf8_lossy(stat.get(start..end)?).into_owned(),
            is_dead,
            parent,
            group,
            session,
            cpu: Duration::from_secs(ticks.into()) / TICKS_PER_SECOND,
        })
    }

    /// Returns whether it was started with this `NAME=value` entry in its environment; false if
    /// that cannot be read.
    pub fn was_given(&self, entry: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        let mut entries = environment.split(|&byte| byte == 0);
        entries.any(|found| found == entry.as_bytes())
    }
}

/// Returns the processes of this machine.
pub fn all() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read)
}

/// Returns the living processes of these sessions, ordered by pid. The id of a session is the pid
/// of its rank.
pub fn of_sessions(sessions: &BTreeSet<i32>) -> Vec<Process> {
    let is_meant = |process: &Process| !process.is_dead && sessions.contains(&process.session);
    let mut found: Vec<Process> = all().filter(is_meant).collect();
    found.sort_by_key(|process| process.pid);
    found
}

/// Returns the children of all threads of this process, including zombies. That takes a few system
/// calls, however many processes the machine has. Returns `None` if the kernel has no such list (it
/// is built without `CONFIG_PROC_CHILDREN`).
///
/// proc(5) warns that the list may be incomplete if a child is reaped while it is read; only this
/// process reaps its children.
pub fn children() -> Option<BTreeSet<i32>> {
    let mut children = BTreeSet::new();
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let list = fs::read_to_string(thread.path().join("children")).ok()?;
        let pids = list.split_ascii_whitespace();
        children.extend(pids.filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Some(children)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_may_contain_brackets_and_times_are_added_up() {
        let stat = b"7 (a) b) S 1 2 3 0 -1 0 0 0 0 0 150 50 20 30 20 0 1 0 0";
        let expected = Process {
            pid: 7,
            name: "a) b".to_owned(),
            is_dead: false,
            parent: 1,
            group: 2,
            session: 3,
            cpu: Duration::from_millis(2500),
        };
        assert_eq!(Process::parse(7, stat), Some(expected));
    }

    #[test]
    fn zombies_are_dead_and_damaged_lines_are_nothing() {
        let zombie = Process::parse(12, b"12 (sh) Z 1 2 3");
        assert!(zombie.is_some_and(|zombie| zombie.is_dead));
        for line in [&b"7 a"[..], b") (", b") ( S 1 2 3", b""] {
            assert_eq!(Process::parse(7, line), None);
        }
    }

    #[test]
    fn a_child_is_listed_until_it_is_reaped() {
        if fs::read("/proc/thread-self/children").is_err() {
            eprintln!("skipped: this kernel does not list children");
            return;
        }
        let mut child = Command::new("/bin/cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("it starts");
        let pid = child.id().cast_signed();
        // A look fails if a thread of another test ends meanwhile.
        let is_listed = || rig::wait::until("a whole list", children).contains(&pid);
        assert!(is_listed());
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert!(!is_listed());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = Process::parse(7, &bytes);
        }
    }
}
