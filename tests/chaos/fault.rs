//! The faults that are injected into an evaluation.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rig::process::alive;
use rig::wait::{now, pause};

use crate::eval::command::{Eval, Running};
use rig::disk::SmallDisk;

use crate::eval::given::marked;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL to a process.
    Kill(Victim),
    /// SIGSTOP to a process, without an end.
    Hang(Victim),
    /// SIGSTOP to a process for some time, shorter than the time limit of a Python policy.
    Stop(Victim, Duration),
    /// SIGINT to the launcher.
    Interrupt,
    /// Reset of all connections to the store.
    CutStore,
    /// A full disk for some time.
    FullDisk(Duration),
    /// Between two launches, the end of a journal is cut off or followed by garbage.
    TornJournal,
}

/// A process that suffers a fault: of several, that of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    Launcher,
    Rank(u64),
    /// The process of an environment.
    Simulator(u64),
    /// The worker of a Python policy.
    Policy(u64),
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
            Fault::Kill(victim) => self.pid(victim).is_some_and(|pid| send(pid, "KILL")),
            Fault::Hang(victim) => self.pid(victim).is_some_and(|pid| send(pid, "STOP")),
            Fault::Stop(victim, time) => self.pid(victim).is_some_and(|pid| stop(pid, time)),
            Fault::Interrupt => send(self.running.pid(), "INT"),
            Fault::CutStore => self.cut(),
            Fault::FullDisk(time) => self.disk.is_some_and(|disk| fill(disk, time)),
            Fault::TornJournal => false,
        }
    }

    fn pid(&self, victim: Victim) -> Option<i32> {
        let (which, pids) = match victim {
            Victim::Launcher => return Some(self.running.pid()),
            Victim::Rank(which) => (which, self.running.ranks()),
            Victim::Simulator(which) => (which, python_processes(self.mark).1),
            Victim::Policy(which) => (which, python_processes(self.mark).0),
        };
        pids.get(which as usize % pids.len().max(1)).copied()
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

/// Sends a signal; returns false if the process is already gone.
pub fn send(pid: i32, name: &str) -> bool {
    alive(pid)
        && Command::new("kill")
            .arg(format!("-{name}"))
            .arg(pid.to_string())
            .status()
            .is_ok_and(|s| s.success())
}

/// Stops a process for some time; returns false if it is already gone.
pub fn stop(pid: i32, time: Duration) -> bool {
    let stopped = send(pid, "STOP");
    pause(time);
    send(pid, "CONT");
    stopped
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
