//! Groups equal stacks, so that one that differs from all others stands out. Pure.

use std::collections::BTreeMap;

use jobs::numbers::Numbers;
use stacks::{Frame, Thread};

use crate::hang::ProcessReport;

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
pub struct StackGroup {
    /// Their stack, innermost frame first.
    pub frames: Vec<Frame>,
    /// What they do in the kernel.
    pub doing: String,
    /// The threads.
    pub members: Vec<Member>,
}

/// One thread of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Global rank.
    pub rank: usize,
    /// Whether this is the main thread of the rank's own process.
    pub is_main: bool,
    /// Whether this is the main thread of its process.
    pub leads: bool,
    /// Name of the process that a rank has started; `None` for the rank's own.
    pub child: Option<String>,
    /// Process id.
    pub pid: i32,
    /// Name of the thread.
    pub thread: String,
}

/// Returns the groups of all threads: those with main threads first, then by descending size.
pub fn groups(processes: &[ProcessReport]) -> Vec<StackGroup> {
    let mut groups: BTreeMap<(bool, &[Frame], &str), Vec<Member>> = BTreeMap::new();
    for process in processes {
        for (index, thread) in process.trace.threads.iter().enumerate() {
            let member = member(process, index, thread);
            // Sockets differ from rank to rank, so only the call counts here.
            let call = thread.doing.split(" on ").next().unwrap_or_default();
            let key = (member.is_main, thread.frames.as_slice(), call);
            groups.entry(key).or_default().push(member);
        }
    }
    let mut groups: Vec<StackGroup> = groups
        .into_iter()
        .map(|((_, frames, doing), members)| StackGroup {
            frames: frames.to_vec(),
            doing: doing.to_owned(),
            members,
        })
        .collect();
    groups.sort_by_key(|group| {
        let is_main = group.members.iter().any(|member| member.is_main);
        (!is_main, usize::MAX - group.members.len())
    });
    groups
}

fn member(process: &ProcessReport, index: usize, thread: &Thread) -> Member {
    Member {
        rank: process.rank,
        is_main: process.child.is_none() && index == 0,
        leads: index == 0,
        child: process.child.clone(),
        pid: process.trace.pid,
        thread: thread.name.clone(),
    }
}

impl StackGroup {
    /// Returns whether these are the main threads of ranks.
    pub fn is_main(&self) -> bool {
        self.members.iter().any(|member| member.is_main)
    }

    /// Returns whether these are the main threads of processes that ranks have started, such as
    /// simulators, and run Python.
    pub fn is_child(&self) -> bool {
        let is_python = |frame: &Frame| matches!(frame, Frame::Python { .. });
        let mut members = self.members.iter();
        members.all(|member| member.leads && member.child.is_some())
            && self.frames.iter().any(is_python)
    }

    /// Returns the line about a group of such threads: "`python` of rank 0: `step` (sim.py:7),
    /// running".
    pub fn child_headline(&self) -> String {
        let name = self.members.first().and_then(|first| first.child.as_ref());
        let name = name.map_or("", String::as_str);
        format!("`{name}` of {}", self.headline())
    }

    /// Returns the ranks of the threads, without repetition, in ascending order.
    pub fn ranks(&self) -> Vec<usize> {
        let mut ranks: Vec<usize> = self.members.iter().map(|member| member.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Returns one line about the group, such as "ranks 0-2: `all_reduce`
    /// (distributed_c10d.py:2870), waiting in `futex`".
    pub fn headline(&self) -> String {
        let ranks = self.ranks();
        let who = match ranks.as_slice() {
            [rank] => format!("rank {rank}"),
            many => format!("ranks {}", shown(many)),
        };
        match place(&self.frames) {
            Some(place) => format!("{who}: {place}, {}", self.doing),
            None => format!("{who}: {}", self.doing),
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
        } => Some(format!("`{function}` ({}:{line})", file_name(file))),
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

/// Returns the last part of a path of any system.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Shows ascending numbers as ranges: `0-2, 5`.
pub fn shown(numbers: &[usize]) -> String {
    let numbers = numbers.iter().map(|number| *number as u64);
    numbers.collect::<Numbers>().text()
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

    fn rank(rank: usize, frames: &[Frame], doing: &str) -> ProcessReport {
        let main = Thread {
            name: "MainThread".to_owned(),
            doing: doing.to_owned(),
            frames: frames.to_vec(),
            ..Thread::default()
        };
        ProcessReport {
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
        let simulator = ProcessReport {
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
            .map(StackGroup::child_headline)
            .collect();
        let expected = "`python` of rank 0: `wait_for_contact` (distributed_c10d.py:29), running";
        assert_eq!(children, [expected]);
    }

    #[test]
    fn neighbours_are_shown_as_a_range() {
        assert_eq!(shown(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(shown(&[]), "");
    }
}
