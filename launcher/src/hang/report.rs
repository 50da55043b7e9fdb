//! The report of a hang: what all processes of the ranks of this node are at, as a file and as a few
//! lines for the console.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use jobs::bytes::ByteSize;
use jobs::count::listed;
use jobs::live::Pulse;
use jobs::printable::printable_line;
use jobs::time::rfc3339;
use stacks::{Frame, Trace};

use crate::hang::groups::{StackGroup, groups, named};
use crate::hang::watch::HungRank;
use crate::node::full_name;
use crate::node::nvml::{self, NvmlGpu};
use crate::process::proc;
use crate::rank_id::RankId;

/// Processes of one rank beyond this number are left out. A rank with more environments than that
/// waits for all of them in the same way.
const MAX_PROCESSES: usize = 64;

/// Groups that the console names; the file has all of them.
const HEADLINES: usize = 2;

/// Threads of one group that are named one by one.
const MAX_MEMBERS: usize = 64;

/// How long the driver of the GPUs may take to answer. One that hangs must not hide what else is
/// known.
const DRIVER: Duration = Duration::from_secs(5);

/// Ranks or processes that a reason names.
const MAX_NAMED: usize = 3;

/// What was found out about the ranks of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HangReport {
    /// The program that was launched.
    pub title: String,
    /// Why the report is made.
    pub reason: String,
    /// The processes, ordered by rank.
    pub processes: Vec<RankProcess>,
    /// How the GPUs of the node are used; empty if there is no NVML, and `None` if the driver
    /// hangs.
    pub gpus: Option<Vec<NvmlGpu>>,
    /// The last lines that each rank wrote, if they were captured.
    pub last_lines: Vec<(usize, Vec<String>)>,
}

/// The stacks of one process of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankProcess {
    /// Global rank.
    pub rank: usize,
    /// Name of the program, if the rank has started it; `None` for the rank's own process.
    pub child: Option<String>,
    /// Its stacks.
    pub trace: Trace,
}

/// Returns why ranks count as hung after `seconds`: some were silent, and some stand still at a
/// place.
pub fn reason(hung: &[HungRank], seconds: u64) -> String {
    let named = |ranks: Vec<&HungRank>| named(&ranks.iter().map(|hung| hung.rank.global).collect());
    let (still, silent): (Vec<_>, Vec<_>) = hung.iter().partition(|hung| hung.stands.is_some());
    let mut parts = Vec::new();
    if !silent.is_empty() {
        let ranks = named(silent);
        parts.push(format!(
            "no output and no CPU time of {ranks} for {seconds} s"
        ));
    }
    let mut what = format!(" has made no progress for {seconds} s");
    if still.len() > 1 {
        let ranks = named(still);
        parts.push(format!("{ranks} have made no progress for {seconds} s"));
        what.clear();
    }
    parts.extend(hung.iter().filter_map(|hung| {
        let (rank, Pulse { job, steps, .. }) = (hung.rank.global, hung.stands.as_ref()?);
        Some(format!("rank {rank}{what}: job `{job}`, {steps} steps"))
    }));
    some_of(parts)
}

/// Joins reasons; of many, the first few, because the report has the stacks of all ranks.
pub fn some_of(mut reasons: Vec<String>) -> String {
    let more = if reasons.len() > MAX_NAMED {
        "; …"
    } else {
        ""
    };
    reasons.truncate(MAX_NAMED);
    reasons.join("; ") + more
}

impl HangReport {
    /// Reads the stacks of these ranks, which are given with their pids, and writes the report into
    /// a new file of `folder`. Returns the lines for the console, and the file.
    ///
    /// # Errors
    /// Says that the file cannot be written, and why.
    pub fn write(
        mut self,
        number: usize,
        ranks: &[(RankId, i32)],
        folder: &Path,
    ) -> anyhow::Result<(Vec<String>, PathBuf)> {
        let time = rfc3339(SystemTime::now());
        let gpus = nvml::ask();
        self.processes = processes(ranks);
        self.gpus = gpus.recv_timeout(DRIVER).ok();
        let path = free_path(folder, number);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, self.text(number, &time)))
            .with_context(|| format!("the stacks cannot be written to `{}`", path.display()))?;
        Ok((self.headlines(), path))
    }

    /// Returns the lines for the console: the smallest groups of main threads, because a rank that
    /// differs from the others is likely to be the cause, and the smallest group of processes that
    /// ranks have started.
    fn headlines(&self) -> Vec<String> {
        let groups = groups(&self.processes);
        let mut main: Vec<&StackGroup> = groups.iter().filter(|group| group.is_main).collect();
        main.sort_by_key(|group| group.members.len());
        let mut lines: Vec<String> = main.iter().map(|group| group.headline()).collect();
        if lines.len() > HEADLINES {
            let more = lines.len() - HEADLINES;
            lines.truncate(HEADLINES);
            lines.push(format!("{more} more groups of ranks"));
        }
        let children = groups.iter().filter(|group| group.is_child());
        let child = children.min_by_key(|group| group.members.len());
        lines.extend(child.map(StackGroup::headline));
        let printable = lines.iter().map(|line| printable_line(line).into_owned());
        printable.collect()
    }

    /// Returns the contents of the file.
    fn text(&self, number: usize, time: &str) -> String {
        let host = full_name();
        let mut text = format!(
            "Hang report {number} of `{}` on {host}, {time}: {}\n",
            self.title, self.reason
        );
        let groups = groups(&self.processes);
        let (main, others): (Vec<_>, Vec<_>) = groups.iter().partition(|group| group.is_main);
        let lines_of =
            |groups: Vec<&StackGroup>| groups.into_iter().flat_map(group_lines).collect();
        section(&mut text, "Main threads of the ranks", lines_of(main));
        let title = "Other threads, and processes that ranks have started";
        section(&mut text, title, lines_of(others));
        let waits = self.processes.iter().filter_map(|process| {
            let main = process.trace.threads.first()?;
            Some(format!("{}: {}", name(process), main.doing))
        });
        let title = "What each main thread does in the kernel";
        section(&mut text, title, waits.collect());
        let gpus = match &self.gpus {
            Some(gpus) => {
                let gpus = gpus.iter().enumerate();
                gpus.map(|(index, gpu)| self.gpu(index, gpu)).collect()
            }
            None => vec![format!(
                "the driver (NVML) does not answer: nothing after {} s",
                DRIVER.as_secs()
            )],
        };
        section(&mut text, "GPUs", gpus);
        let notes = self.processes.iter().flat_map(|process| {
            let notes = process.trace.notes.iter();
            notes.map(|note| format!("{}: {note}", name(process)))
        });
        section(&mut text, "What is missing", notes.collect());
        for (rank, lines) in &self.last_lines {
            section(
                &mut text,
                &format!("Last lines of rank {rank}"),
                lines.clone(),
            );
        }
        text
    }

    /// Returns a line about a GPU, with the processes of the ranks that use it.
    fn gpu(&self, index: usize, gpu: &NvmlGpu) -> String {
        let mut line = format!("GPU {index}");
        if !gpu.name.is_empty() {
            line += &format!(" ({})", gpu.name);
        }
        line += ": ";
        if let Some(busy) = gpu.busy {
            line += &format!("{busy} % busy, ");
        }
        let memory = gpu.memory;
        let (used, total) = (ByteSize(memory.used).gib(), ByteSize(memory.total).gib());
        line += &format!("{used:.1} of {total:.1} GiB in use");
        let mut others = 0;
        for (pid, bytes) in &gpu.processes {
            let is_it = |process: &&RankProcess| process.trace.pid.cast_unsigned() == *pid;
            let Some(process) = self.processes.iter().find(is_it) else {
                others += 1;
                continue;
            };
            line += &format!("; {}", name(process));
            if let Some(bytes) = bytes {
                line += &format!(" {:.1} GiB", ByteSize(*bytes).gib());
            }
        }
        match others {
            0 => line,
            1 => format!("{line}; another process"),
            others => format!("{line}; {others} other processes"),
        }
    }
}

/// Returns the processes of these ranks with their stacks.
fn processes(ranks: &[(RankId, i32)]) -> Vec<RankProcess> {
    let of_sessions = proc::of_sessions(&ranks.iter().map(|(_, pid)| *pid).collect());
    let (mut found, mut pids) = (Vec::new(), Vec::new());
    for &(rank, leader) in ranks {
        found.push((rank.global, None));
        pids.push(leader);
        let started = of_sessions
            .iter()
            .filter(|process| process.session == leader && process.pid != leader);
        for process in started.take(MAX_PROCESSES) {
            found.push((rank.global, Some(process.name.clone())));
            pids.push(process.pid);
        }
    }
    let traces = stacks::traces(&pids);
    let with_traces = found.into_iter().zip(traces);
    with_traces
        .map(|((rank, child), trace)| RankProcess { rank, child, trace })
        .collect()
}

/// Returns the first path that is not taken: a run that was resumed may have older reports.
fn free_path(folder: &Path, number: usize) -> PathBuf {
    let path = |number| folder.join(format!("hang_{number}.txt"));
    let mut numbers = number..number.saturating_add(100_000);
    let free = numbers.find(|number| !path(*number).exists());
    path(free.unwrap_or(number))
}

/// Adds a section, unless it is empty. Names from elsewhere may contain control characters.
fn section(text: &mut String, title: &str, lines: Vec<String>) {
    if lines.is_empty() {
        return;
    }
    text.push_str(&format!("\n{title}\n{}\n", "-".repeat(title.len())));
    for line in lines {
        text.push_str(&printable_line(&line));
        text.push('\n');
    }
}

fn name(process: &RankProcess) -> String {
    let RankProcess { rank, child, trace } = process;
    match child {
        None => format!("rank {rank} (pid {})", trace.pid),
        Some(child) => format!("`{child}` of rank {rank} (pid {})", trace.pid),
    }
}

fn group_lines(group: &StackGroup<'_>) -> Vec<String> {
    let mut lines = vec![group.ranks_and_place()];
    if !group.is_main {
        let members = group.members.iter().map(|(process, thread)| {
            let (thread, pid) = (&thread.name, process.trace.pid);
            match &process.child {
                None => format!("`{thread}` of {pid}"),
                Some(child) => format!("`{thread}` of `{child}` {pid}"),
            }
        });
        let members: Vec<String> = members.collect();
        lines.push(format!("    {}", listed(&members, MAX_MEMBERS)));
    }
    lines.extend(group.frames.iter().map(|frame| match frame {
        Frame::Python {
            function,
            file,
            line,
        } => format!("      {function}  {file}:{line}"),
        Frame::Native { function, library } => {
            format!("      {}  {library}", function.as_deref().unwrap_or("?"))
        }
    }));
    if group.frames.is_empty() {
        lines.push("      (no stack)".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::nvml::GpuMemory;
    use crate::tests::rank;

    fn report(gpus: Option<Vec<NvmlGpu>>) -> String {
        let of = |rank, pid, child: Option<&str>| RankProcess {
            rank,
            child: child.map(str::to_owned),
            trace: Trace {
                pid,
                ..Trace::default()
            },
        };
        let report = HangReport {
            title: "eval".to_owned(),
            reason: "SIGUSR2 asked for it".to_owned(),
            processes: vec![of(4, 10, None), of(4, 11, Some("python"))],
            gpus,
            last_lines: Vec::new(),
        };
        report.text(1, "2026-11-26T10:00:00.000Z")
    }

    #[test]
    fn the_use_of_a_gpu_names_the_processes_of_ranks() {
        let gpu = NvmlGpu {
            name: "NVIDIA H200".to_owned(),
            memory: GpuMemory {
                used: 3 << 30,
                total: 8 << 30,
            },
            busy: Some(100),
            processes: [(1, None), (10, Some(2 << 30)), (11, None), (99, Some(1))].into(),
            ..NvmlGpu::default()
        };
        let line = "GPUs\n----\nGPU 0: 0.0 of 0.0 GiB in use\n\
                    GPU 1 (NVIDIA H200): 100 % busy, 3.0 of 8.0 GiB in use; rank 4 (pid 10) 2.0 GiB; \
                    `python` of rank 4 (pid 11); 2 other processes\n";
        let text = report(Some(vec![NvmlGpu::default(), gpu]));
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn without_nvml_nothing_is_said_of_gpus_and_a_driver_that_hangs_is_named() {
        let text = report(Some(Vec::new()));
        assert!(!text.contains("GPU"), "{text}");
        let text = report(None);
        assert!(
            text.contains("GPUs\n----\nthe driver (NVML) does not answer"),
            "{text}"
        );
    }

    fn hung_ranks(hung: Vec<(usize, Option<Pulse>)>) -> Vec<HungRank> {
        let hung = hung.into_iter().map(|(number, stands)| HungRank {
            rank: rank(number),
            pid: 0,
            stands,
        });
        hung.collect()
    }

    fn at(job: &str, steps: u64) -> Option<Pulse> {
        Some(Pulse {
            job: job.to_owned(),
            steps,
            ..Pulse::default()
        })
    }

    #[test]
    fn the_reason_names_ranks_and_where_they_stand() {
        for (hung, expected) in [
            (
                vec![(1, at("pick", 1203))],
                "rank 1 has made no progress for 60 s: job `pick`, 1203 steps",
            ),
            (
                vec![(0, at("pick", 3)), (1, at("push", 4))],
                "ranks 0-1 have made no progress for 60 s; rank 0: job `pick`, 3 steps; \
                 rank 1: job `push`, 4 steps",
            ),
            (
                vec![(2, None), (3, None)],
                "no output and no CPU time of ranks 2-3 for 60 s",
            ),
            (
                vec![(0, at("pick", 3)), (2, None)],
                "no output and no CPU time of rank 2 for 60 s; \
                 rank 0 has made no progress for 60 s: job `pick`, 3 steps",
            ),
        ] {
            assert_eq!(reason(&hung_ranks(hung), 60), expected);
        }
    }

    #[test]
    fn of_many_ranks_only_some_places_are_named() {
        let many = (0..100).map(|rank| (rank, at("pick", 3))).collect();
        let reason = reason(&hung_ranks(many), 60);
        let expected = "ranks 0-99 have made no progress for 60 s; rank 0: job `pick`, 3 steps; \
                        rank 1: job `pick`, 3 steps; …";
        assert_eq!(reason, expected);
    }
}
