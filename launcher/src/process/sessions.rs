//! The processes of a rank: those of its session.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::process::leftover::pids;

/// Ticks per second of the times in `/proc`: Linux shows them in hundredths of a second on every
/// architecture (`USER_HZ`).
const TICKS_PER_SECOND: u32 = 100;

/// A process of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionProcess {
    /// Its pid.
    pub pid: i32,
    /// The session, which is the pid of the rank.
    pub session: i32,
    /// Name of its program, at most 15 bytes.
    pub name: String,
    /// CPU time that it has used, together with its children that have ended.
    pub cpu: Duration,
}

/// Returns the living processes of these sessions, ordered by pid.
pub fn processes(sessions: &BTreeSet<i32>) -> Vec<SessionProcess> {
    let mut found: Vec<SessionProcess> = pids()
        .filter_map(process)
        .filter(|process| sessions.contains(&process.session))
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn process(pid: i32) -> Option<SessionProcess> {
    parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `pid (name) state ppid pgrp session …`; see proc_pid_stat(5).
fn parse(pid: i32, stat: &[u8]) -> Option<SessionProcess> {
    let name_start = stat.iter().position(|&byte| byte == b'(')? + 1;
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields: Vec<&str> = std::str::from_utf8(stat.get(name_end + 1..)?)
        .ok()?
        .split_ascii_whitespace()
        .collect();
    if matches!(*fields.first()?, "Z" | "X" | "x") {
        return None;
    }
    // The state is field 3 of the manual page and the first one here.
    let ticks = [11, 12, 13, 14].map(|at| fields.get(at)?.parse::<u32>().ok());
    let ticks: u32 = ticks.into_iter().flatten().fold(0, u32::saturating_add);
    Some(SessionProcess {
        pid,
        session: fields.get(3)?.parse().ok()?,
        name: String::from_utf8_lossy(stat.get(name_start..name_end)?).into_owned(),
        cpu: Duration::from_secs(ticks.into()) / TICKS_PER_SECOND,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_are_added_up() {
        let stat = b"7 (a) b) S 1 2 3 0 -1 0 0 0 0 0 150 50 20 30 20 0 1 0 0";
        let expected = SessionProcess {
            pid: 7,
            session: 3,
            name: "a) b".to_owned(),
            cpu: Duration::from_millis(2500),
        };
        assert_eq!(parse(7, stat), Some(expected));
    }

    #[test]
    fn the_dead_and_the_damaged_are_left_out() {
        assert_eq!(parse(7, b"7 (a) Z 1 2 3 0 -1 0 0 0 0 0 1 1 1 1"), None);
        assert_eq!(parse(7, b"7 a"), None);
        assert_eq!(parse(7, b""), None);
    }
}
