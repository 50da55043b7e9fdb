//! Groups equal stacks, so that one that differs from all others stands out. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jobs::numbers::Numbers;
use stacks::{Frame, Thread};

use crate::hang::report::RankProcess;

/// Libraries of the system. Their innermost functions only say how a thread waits.
const SYSTEM: [&str; 6] = [
    "ld-linux",
    "libc.so",
    "libc-",
    "libpthread",
    "libstdc++",
    "unknown",
];

/// Threads with the same stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackGroup<'a> {
    /// Whether these are the main threads of ranks.
    pub is_main: bool,
    /// Their stack, innermost frame first.
    pub frames: &'a [Frame],
    /// What they do in the kernel.
    pub doing: &'a str,
    /// The threads, with their processes.
    pub members: Vec<(&'a RankProcess, &'a Thread)>,
}

/// Returns the groups of all threads: those with main threads first, then by descending size.
pub fn groups(processes: &[RankProcess]) -> Vec<StackGroup<'_>> {
    let mut groups = BTreeMap::<_, Vec<_>>::new();
    for process in processes {
        for thread in &process.trace.threads {
            let is_main = process.child.is_none() && leads(process, thread);
            // Sockets differ from rank to rank, so only the call counts here.
            let call = thread.doing.split(" on ").next().unwrap_or_default();
            let key = (is_main, thread.frames.as_slice(), call);
            groups.entry(key).or_default().push((process, thread));
        }
    }
    let groups = groups.into_iter();
    let mut groups: Vec<StackGroup> = groups
        .map(|((is_main, frames, doing), members)| StackGroup {
            is_main,
            frames,
            doing,
            members,
        })
        .collect();
    groups.sort_by_key(|group| (!group.is_main, Reverse(group.members.len())));
    groups
}

/// Returns whether this is the main thread of its process.
fn leads(process: &RankProcess, thread: &Thread) -> bool {
    thread.tid == process.trace.pid
}

impl StackGroup<'_> {
    /// Returns whether these are the main threads of processes that ranks have started, such as
    /// simulators, and run Python.
    pub fn is_child(&self) -> bool {
        let is_python = |frame: &Frame| matches!(frame, Frame::Python { .. });
        let mut members = self.members.iter();
        members.all(|(process, thread)| process.child.is_some() && leads(process, thread))
            && self.frames.iter().any(is_python)
    }

    /// Returns the line for the console, which names a process that a rank has started: "`python` of
    /// rank 0: `step` (sim.py:7), running".
    pub fn headline(&self) -> String {
        let first = self.members.first();
        match first.and_then(|(process, _)| process.child.as_deref()) {
            Some(child) => format!("`{child}` of {}", self.ranks_and_place()),
            None => self.ranks_and_place(),
        }
    }

    /// Returns one line about the group, such as "ranks 0-2: `all_reduce`
    /// (distributed_c10d.py:2870), waiting in `futex`".
    pub fn ranks_and_place(&self) -> String {
        let ranks = self.members.iter().map(|(process, _)| process.rank);
        let ranks = named(&ranks.collect());
        match place(self.frames) {
            Some(place) => format!("{ranks}: {place}, {}", self.doing),
            None => format!("{ranks}: {}", self.doing),
        }
    }
}

/// Returns the innermost function that says what a thread is for: of Python if there is one, else
/// the first outside the libraries of the system.
fn place(frames: &[Frame]) -> Option<String> {
    let python = frames.iter().find_map(|frame| match frame {
        Frame::Python {
            function,
            file,
            line,
        } => {
            let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
            Some(format!("`{function}` ({file}:{line})"))
        }
        Frame::Native { .. } => None,
    });
    let native = || {
        frames.iter().find_map(|frame| match frame {
            Frame::Native {
                function: Some(function),
                library,
            } if !SYSTEM.iter().any(|name| library.starts_with(name)) && !is_rust_std(function) => {
                Some(format!("`{function}` ({library})"))
            }
            _ => None,
        })
    };
    python.or_else(native)
}

/// Names ranks: "rank 7", "ranks 0-2, 5".
pub fn named(ranks: &BTreeSet<usize>) -> String {
    let numbers: Numbers = ranks.iter().map(|rank| *rank as u64).collect();
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}", numbers.text())
}

/// Returns whether the function belongs to the standard library of Rust, which is in every binary.
fn is_rust_std(function: &str) -> bool {
    let name = function.trim_start_matches('<');
    ["std::", "core::", "alloc::"]
        .iter()
        .any(|library| name.starts_with(library))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stacks::Trace;

    fn python(function: &str, line: i32) -> Frame {
        Frame::Python {
            function: function.to_owned(),
            file: "/site/torch/distributed_c10d.py".to_owned(),
            line,
        }
    }

    fn native(function: &str, library: &str) -> Frame {
        Frame::Native {
            function: Some(function.to_owned()),
            library: library.to_owned(),
        }
    }

    fn rank(rank: usize, frames: &[Frame], doing: &str) -> RankProcess {
        let main = Thread {
            tid: 100,
            name: "MainThread".to_owned(),
            doing: doing.to_owned(),
            frames: frames.to_vec(),
        };
        RankProcess {
            rank,
            child: None,
            trace: Trace {
                pid: 100,
                threads: vec![main],
                notes: Vec::new(),
            },
        }
    }

    #[test]
    fn the_rank_that_differs_has_a_group_of_its_own() {
        let reduce = [native("poll", "libc.so.6"), python("all_reduce", 2870)];
        let own = [python("step", 7)];
        let ranks = [
            rank(0, &reduce, "waiting in `poll` on a"),
            rank(1, &own, "running"),
            rank(2, &reduce, "waiting in `poll` on b"),
        ];
        let lines: Vec<String> = groups(&ranks).iter().map(StackGroup::headline).collect();
        let expected = [
            "ranks 0, 2: `all_reduce` (distributed_c10d.py:2870), waiting in `poll`",
            "rank 1: `step` (distributed_c10d.py:7), running",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn without_python_the_first_function_outside_of_the_standard_libraries_counts() {
        let c = native("__futex_wait", "libc.so.6");
        let gloo = native("gloo::waitRecv", "libtorch_cpu.so");
        let place = |frames: &[Frame]| place(frames).unwrap_or_default();
        let found = place(&[c.clone(), gloo]);
        assert_eq!(found, "`gloo::waitRecv` (libtorch_cpu.so)");
        let rust = |function| native(function, "rrun-rank");
        let found = place(&[
            c.clone(),
            rust("<std::thread::thread::Thread>::park_timeout"),
            rust("std::sync::mpmc::Receiver::recv_timeout"),
            rust("runtime::eval::EpisodeLoop::run"),
        ]);
        assert_eq!(found, "`runtime::eval::EpisodeLoop::run` (rrun-rank)");
        assert_eq!(place(&[c]), "");
    }

    #[test]
    fn a_simulator_is_named_beside_the_rank_that_waits_for_it() {
        let simulator = RankProcess {
            child: Some("python".to_owned()),
            ..rank(0, &[python("wait_for_contact", 29)], "running")
        };
        let ranks = [
            rank(0, &[native("recv", "rrun-rank")], "waiting"),
            simulator,
        ];
        let groups = groups(&ranks);
        let children: Vec<String> = groups
            .iter()
            .filter(|group| group.is_child())
            .map(StackGroup::headline)
            .collect();
        let expected = "`python` of rank 0: `wait_for_contact` (distributed_c10d.py:29), running";
        assert_eq!(children, [expected]);
    }

    #[test]
    fn neighbours_are_shown_as_a_range() {
        assert_eq!(named(&[0, 1, 2, 5, 7, 8].into()), "ranks 0-2, 5, 7-8");
        assert_eq!(named(&[3].into()), "rank 3");
    }
}
