//! The processes of a rank: those of its session.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::process::leftover::pids;
use crate::process::stat;

/// Ticks per second of [`stat::Stat::cpu_ticks`].
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
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = stat::parse(&line).filter(|stat| !stat.is_dead)?;
    Some(SessionProcess {
        pid,
        session: stat.session,
        name: stat::name(&line)?,
        cpu: Duration::from_secs(stat.cpu_ticks.into()) / TICKS_PER_SECOND,
    })
}
