//! The faults that are injected into an evaluation.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rig::process::{alive, strike};
use rig::wait::{now, pause};

use crate::eval::command::{Eval, Running, Signal};
use rig::disk::SmallDisk;

use crate::eval::given::marked;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A blow to a process: of several, to that of a number.
    Strike(Blow, Victim, u64),
    /// Reset of all connections to the store.
    CutStore,
    /// A full disk for some time.
    FullDisk(Duration),
    /// Between two launches, the end of a journal is cut off or followed by garbage.
    TornJournal,
}

/// What happens to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, without an end.
    Hang,
    /// SIGSTOP for some time; to a Python policy, for a shorter one than its time limit.
    Stop(Duration),
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Term,
}

impl Blow {
    /// Strikes a process; returns false if it is already gone.
    pub fn strike(self, pid: i32) -> bool {
        match self {
            Blow::Kill => strike(pid, Signal::KILL),
            Blow::Hang => strike(pid, Signal::STOP),
            Blow::Interrupt => strike(pid, Signal::INT),
            Blow::Term => strike(pid, Signal::TERM),
            Blow::Stop(time) => {
                let stopped = strike(pid, Signal::STOP);
                pause(time);
                strike(pid, Signal::CONT);
                stopped
            }
        }
    }
}

/// A process that suffers a blow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Launcher,
    /// The launcher that serves the store of several nodes.
    Host,
    Rank,
    /// The process of an environment.
    Simulator,
    /// The worker of a Python policy.
    Policy,
}

/// Returns the process of a number; of fewer, one of them.
pub fn pick(pids: &[i32], which: u64) -> Option<i32> {
    pids.get(which as usize % pids.len().max(1)).copied()
}

/// A launch into which faults are injected.
pub struct Target<'a> {
    pub running: &'a Running,
    pub mark: &'a str,
    pub disk: Option<&'a SmallDisk>,
}

impl Target<'_> {
    /// Injects a fault; returns whether there was a target for it.
    pub fn suffer(&self, fault: &Fault) -> bool {
        match *fault {
            Fault::Strike(blow, victim, which) => {
                let pid = pick(&self.pids(victim), which);
                pid.is_some_and(|pid| blow.strike(pid))
            }
            Fault::CutStore => self.cut(),
            Fault::FullDisk(time) => self.disk.is_some_and(|disk| fill(disk, time)),
            Fault::TornJournal => false,
        }
    }

    fn pids(&self, victim: Victim) -> Vec<i32> {
        match victim {
            Victim::Launcher | Victim::Host => vec![self.running.pid()],
            Victim::Rank => self.running.ranks(),
            Victim::Simulator => python_processes(self.mark).1,
            Victim::Policy => python_processes(self.mark).0,
        }
    }

    /// Resets the connections of the ranks to their store, with ss(8) `-K`.
    fn cut(&self) -> bool {
        let port = |pid: &i32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let environ = String::from_utf8_lossy(&environ).into_owned();
            environ
                .split('\0')
                .find_map(|variable| variable.strip_prefix("MASTER_PORT=").map(str::to_owned))
        };
        let Some(port) = self.running.ranks().iter().find_map(port) else {
            return false;
        };
        let killed = Command::new("ss")
            .args(["-K", "-H", "-t", "dport", "=", &format!(":{port}")])
            .output();
        killed.is_ok_and(|output| !output.stdout.is_empty())
    }
}

/// Returns the Python processes with the mark of a run: workers of policies, and the others.
pub fn python_processes(mark: &str) -> (Vec<i32>, Vec<i32>) {
    let is_python = |pid: &i32| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.starts_with("python") || comm.starts_with("rrun-sim")
    };
    let is_policy = |pid: &i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words
            .split('\0')
            .any(|word| word.starts_with("rrun-policy "))
    };
    let all = marked(mark).into_iter().filter(is_python);
    all.partition(is_policy)
}

/// Waits until a given time, or until the launch has ended.
pub fn sleep_until(running: &Running, until: Instant) {
    while now() < until && alive(running.pid()) {
        pause(Duration::from_millis(5));
    }
}

/// Damages the end of a journal; returns whether there was one.
pub fn tear(eval: &Eval, draw: u64) -> bool {
    let Ok(entries) = std::fs::read_dir(eval.folder().journals()) else {
        return false;
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let Some(path) = paths.get(draw as usize % paths.len().max(1)) else {
        return false;
    };
    let bytes = std::fs::read(path).expect("a journal is readable");
    if draw & 64 == 0 {
        let mut file = OpenOptions::new()
            .append(true)
            .open(path)
            .expect("a journal is writable");
        file.write_all(&b"{\"type\":\"episode\",\"job\":\"rea\0\0\xff"[..1 + draw as usize % 24])
            .expect("there is room");
        return true;
    }
    // Cut within the last line.
    let body = bytes.len().saturating_sub(1);
    let last = bytes[..body]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let keep = last as u64 + draw % (bytes.len() - last).max(1) as u64;
    File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.set_len(keep))
        .expect("a journal is writable");
    true
}

/// Fills a file system for some time.
fn fill(disk: &SmallDisk, time: Duration) -> bool {
    let path = disk.path().join("ballast");
    let Ok(mut file) = File::create(&path) else {
        return false;
    };
    let block = [0; 4096];
    while file.write_all(&block).is_ok() {}
    pause(time);
    drop(file);
    std::fs::remove_file(path).is_ok()
}
