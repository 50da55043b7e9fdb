//! Processes that are known by their PID.

use std::fmt::Display;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Returns whether a process exists and is not a zombie.
pub fn alive(pid: impl Display) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Sends a signal to a process.
///
/// # Panics
///
/// If there is no such process, or a launcher would die of the signal before it minds it.
#[track_caller]
pub fn send(pid: i32, signal: Signal) {
    if ![Signal::KILL, Signal::STOP, Signal::CONT].contains(&signal) {
        crate::threads::assert_none_is_exposed(pid);
    }
    let sent = kill_process(Pid::from_raw(pid).expect("a pid is above 0"), signal);
    assert!(sent.is_ok(), "{signal:?} to {pid}: {sent:?}");
}

/// Sends a signal to a process of any kind; returns false if it is already gone.
pub fn strike(pid: i32, signal: Signal) -> bool {
    let pid = Pid::from_raw(pid).filter(|_| alive(pid));
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Returns the PIDs of a process's children that run a program of this name, in order of their
/// PIDs.
pub fn children(parent: i32, name: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids: Vec<i32> = processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| is_child(*pid, parent, name))
        .collect();
    pids.sort_unstable();
    pids
}

fn is_child(pid: i32, parent: i32, name: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let parent = parent.to_string();
    stat.contains(&format!("({name})")) && after_name.split_whitespace().nth(1) == Some(&parent)
}

/// Returns the threads of a process: name, state, and what each waits for in the kernel.
pub fn threads(pid: i32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let line = |thread: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let (stat, channel, call) = (read("stat"), read("wchan"), read("syscall"));
        let head: Vec<&str> = stat.split(' ').take(3).collect();
        format!("{pid}: {} {channel} {}", head.join(" "), call.trim())
    };
    threads.into_iter().flatten().flatten().map(line).collect()
}
