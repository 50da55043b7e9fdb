//! The hang report as text. Pure.

use std::fmt::Write as _;

use jobs::bytes::ByteSize;
use jobs::printable::printable_line;
use stacks::Frame;

use crate::hang::groups::{Member, StackGroup, groups};
use crate::hang::{HangReport, ProcessReport};
use crate::node::gpu_use::GpuUse;

/// Lines on the console that name groups; the file has all of them.
const HEADLINES: usize = 2;

/// Threads of one group that are named one by one.
const MAX_MEMBERS: usize = 64;

impl HangReport {
    /// Returns the lines for the console: the smallest groups of main threads, because a rank that
    /// differs from the others is likely to be the cause, and the smallest group of processes that
    /// ranks have started.
    pub fn headlines(&self) -> Vec<String> {
        let groups = groups(&self.processes);
        let mut main: Vec<&StackGroup> = groups.iter().filter(|group| group.is_main()).collect();
        main.sort_by_key(|group| group.members.len());
        let mut lines: Vec<String> = main
            .iter()
            .take(HEADLINES)
            .map(|group| printable_line(&group.headline()).into_owned())
            .collect();
        if let Some(more) = main.len().checked_sub(HEADLINES).filter(|more| *more > 0) {
            lines.push(format!("{more} more groups of ranks"));
        }
        let children = groups.iter().filter(|group| group.is_child());
        let child = children.min_by_key(|group| group.members.len());
        lines.extend(child.map(|group| printable_line(&group.child_headline()).into_owned()));
        lines
    }

    /// Returns the contents of the file.
    pub fn text(&self) -> String {
        let mut text = format!(
            "Hang report {} of `{}` on {}, {}: {}\n",
            self.number, self.title, self.host, self.time, self.reason
        );
        let groups = groups(&self.processes);
        section(&mut text, "Main threads of the ranks");
        for group in groups.iter().filter(|group| group.is_main()) {
            push_group(&mut text, group);
        }
        let others: Vec<&StackGroup> = groups.iter().filter(|group| !group.is_main()).collect();
        if !others.is_empty() {
            section(
                &mut text,
                "Other threads, and processes that ranks have started",
            );
        }
        for group in others {
            push_group(&mut text, group);
        }
        self.push_waits(&mut text);
        self.push_gpus(&mut text);
        self.push_notes(&mut text);
        self.push_last_lines(&mut text);
        text
    }

    fn push_waits(&self, text: &mut String) {
        section(text, "What each main thread does in the kernel");
        for process in self.processes.iter() {
            let Some(main) = process.trace.threads.first() else {
                continue;
            };
            line(text, &format!("{}: {}", name(process), main.doing));
        }
    }

    fn push_gpus(&self, text: &mut String) {
        let lines: Vec<String> = match &self.gpus {
            Ok(gpus) => gpus.iter().map(|gpu| self.gpu(gpu)).collect(),
            Err(err) => vec![err.to_string()],
        };
        if !lines.is_empty() {
            section(text, "GPUs");
            lines.iter().for_each(|gpu| line(text, gpu));
        }
    }

    /// Returns a line about a GPU, with the processes of the ranks that use it.
    fn gpu(&self, gpu: &GpuUse) -> String {
        let name = match gpu.name.as_str() {
            "" => String::new(),
            name => format!(" ({name})"),
        };
        let busy = gpu
            .busy
            .map_or_else(String::new, |busy| format!("{busy} % busy, "));
        let (used, total) = (ByteSize(gpu.used).gib(), ByteSize(gpu.total).gib());
        let mut shown = format!(
            "GPU {}{name}: {busy}{used:.1} of {total:.1} GiB in use",
            gpu.index
        );
        let mut others = 0;
        for (pid, bytes) in &gpu.processes {
            let mut processes = self.processes.iter();
            let Some(process) = processes.find(|process| process.trace.pid.cast_unsigned() == *pid)
            else {
                others += 1;
                continue;
            };
            shown += &format!("; {}", self::name(process));
            if let Some(bytes) = bytes {
                shown += &format!(" {:.1} GiB", ByteSize(*bytes).gib());
            }
        }
        match others {
            0 => shown,
            1 => format!("{shown}; another process"),
            others => format!("{shown}; {others} other processes"),
        }
    }

    fn push_notes(&self, text: &mut String) {
        if self
            .processes
            .iter()
            .all(|process| process.trace.notes.is_empty())
        {
            return;
        }
        section(text, "What is missing");
        for process in &self.processes {
            for note in &process.trace.notes {
                line(text, &format!("{}: {note}", name(process)));
            }
        }
    }

    fn push_last_lines(&self, text: &mut String) {
        for (rank, lines) in &self.last_lines {
            section(text, &format!("Last lines of rank {rank}"));
            lines.iter().for_each(|last| line(text, last));
        }
    }
}

fn name(process: &ProcessReport) -> String {
    let pid = process.trace.pid;
    match &process.child {
        None => format!("rank {} (pid {pid})", process.rank),
        Some(child) => format!("`{child}` of rank {} (pid {pid})", process.rank),
    }
}

fn section(text: &mut String, title: &str) {
    text.push('\n');
    line(text, title);
    line(text, &"-".repeat(title.chars().count()));
}

/// Adds a line; names from elsewhere may contain control characters.
fn line(text: &mut String, line: &str) {
    text.push_str(&printable_line(line));
    text.push('\n');
}

fn push_group(text: &mut String, group: &StackGroup) {
    line(text, &group.headline());
    if !group.is_main() {
        line(text, &format!("    {}", threads(&group.members)));
    }
    for frame in &group.frames {
        line(text, &format!("      {}", shown(frame)));
    }
    if group.frames.is_empty() {
        line(text, "      (no stack)");
    }
}

fn threads(members: &[Member]) -> String {
    let mut shown = String::new();
    for (index, member) in members.iter().take(MAX_MEMBERS).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let Member { thread, pid, .. } = member;
        // Writing into a string cannot fail.
        let _ = match &member.child {
            None => write!(shown, "{comma}`{thread}` of {pid}"),
            Some(child) => write!(shown, "{comma}`{thread}` of `{child}` {pid}"),
        };
    }
    match members
        .len()
        .checked_sub(MAX_MEMBERS)
        .filter(|more| *more > 0)
    {
        Some(more) => format!("{shown} and {more} more"),
        None => shown,
    }
}

fn shown(frame: &Frame) -> String {
    match frame {
        Frame::Python {
            function,
            file,
            line,
        } => format!("{function}  {file}:{line}"),
        Frame::Native { function, library } => {
            let function = function.as_deref().unwrap_or("?");
            format!("{function}  {library}")
        }
    }
}

#[cfg(test)]
mod tests {
    use stacks::Trace;

    use super::*;
    use crate::node::gpu_use::NoAnswer;

    fn report(gpus: Result<Vec<GpuUse>, NoAnswer>) -> String {
        let of = |rank, pid, child: Option<&str>| ProcessReport {
            rank,
            child: child.map(str::to_owned),
            trace: Trace {
                pid,
                ..Trace::default()
            },
        };
        let report = HangReport {
            processes: vec![of(4, 10, None), of(4, 11, Some("python"))],
            gpus,
            ..HangReport::now(1, "eval", "SIGUSR2 asked for it")
        };
        report.text()
    }

    #[test]
    fn the_use_of_a_gpu_names_the_processes_of_ranks() {
        let gpu = GpuUse {
            index: 1,
            name: "NVIDIA H200".to_owned(),
            busy: Some(100),
            used: 3 << 30,
            total: 8 << 30,
            processes: [(1, None), (10, Some(2 << 30)), (11, None), (99, Some(1))].into(),
        };
        let line = "GPUs\n----\nGPU 1 (NVIDIA H200): 100 % busy, 3.0 of 8.0 GiB in use; \
                    rank 4 (pid 10) 2.0 GiB; `python` of rank 4 (pid 11); 2 other processes\n";
        let text = report(Ok(vec![gpu]));
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn without_nvml_nothing_is_said_of_gpus_and_a_driver_that_hangs_is_named() {
        let text = report(Ok(Vec::new()));
        assert!(!text.contains("GPU"), "{text}");
        let text = report(Err(NoAnswer));
        assert!(
            text.contains("GPUs\n----\nthe driver (NVML) does not answer"),
            "{text}"
        );
    }
}
