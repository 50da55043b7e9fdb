//! Captures all processes of the ranks of this node, and makes the report of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jobs::time::rfc3339;
use stacks::Captured;
use stacks::native::Files;

use crate::hang::{HangReport, ProcessReport};
use crate::node::gpu_use::GpuQuestion;
use crate::node::host::full_name;
use crate::process::sessions::{self, SessionProcess};

/// Processes of one rank beyond this number are left out. A rank with more environments than that
/// waits for all of them in the same way.
const MAX_PROCESSES: usize = 64;

/// A process that was captured.
#[derive(Debug)]
pub struct CapturedProcess {
    /// Global rank.
    rank: usize,
    /// Name of the program, if the rank has started it.
    child: Option<String>,
    captured: Captured,
}

/// What was captured on this node, and what else the report says.
#[derive(Debug)]
pub struct CapturedRanks {
    /// The report without its processes.
    pub report: HangReport,
    /// The processes, ordered by rank.
    pub processes: Vec<CapturedProcess>,
}

/// Captures the processes of these ranks, which are given with their pids. Blocks for a few
/// milliseconds per process; must not run at the same time as anything that waits for children.
pub fn capture(ranks: &[(usize, i32)]) -> Vec<CapturedProcess> {
    let processes = sessions::processes(&ranks.iter().map(|(_, pid)| *pid).collect());
    let mut captured = Vec::new();
    for &(rank, leader) in ranks {
        let of_rank = processes
            .iter()
            .filter(|process| process.session == leader && process.pid != leader);
        captured.push(CapturedProcess {
            rank,
            child: None,
            captured: stacks::capture(leader),
        });
        captured.extend(
            of_rank
                .take(MAX_PROCESSES)
                .map(|process| child(rank, process)),
        );
    }
    captured
}

fn child(rank: usize, process: &SessionProcess) -> CapturedProcess {
    CapturedProcess {
        rank,
        child: Some(process.name.clone()),
        captured: stacks::capture(process.pid),
    }
}

impl CapturedProcess {
    /// Takes the threads that had not stopped in time.
    pub fn take_stopping(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.captured.stopping)
    }
}

impl CapturedRanks {
    /// Unwinds the stacks, and writes the report into a new file of `folder`. Takes up to a few
    /// seconds, mostly to read symbols of libraries.
    ///
    /// # Errors
    /// Returns the path and the system's error if the file cannot be written.
    pub fn write(self, folder: &Path) -> Result<(HangReport, PathBuf), (PathBuf, io::Error)> {
        let gpus = GpuQuestion::ask();
        let mut files = Files::default();
        let mut report = self.report;
        report.processes = self
            .processes
            .into_iter()
            .map(|process| ProcessReport {
                rank: process.rank,
                child: process.child,
                trace: stacks::trace(&process.captured, &mut files),
            })
            .collect();
        report.gpus = gpus.answer();
        let path = free_path(folder, report.number);
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, report.text()));
        match written {
            Ok(()) => Ok((report, path)),
            Err(err) => Err((path, err)),
        }
    }
}

/// Returns the first path that is not taken: a run that was resumed may have older reports.
fn free_path(folder: &Path, number: usize) -> PathBuf {
    let path = |number| folder.join(format!("hang_{number}.txt"));
    let numbers = number..number.saturating_add(100_000);
    numbers
        .map(path)
        .find(|path| !path.exists())
        .unwrap_or_else(|| path(number))
}

impl HangReport {
    /// Returns a report without processes, made now on this machine.
    pub fn now(number: usize, title: &str, reason: &str) -> HangReport {
        HangReport {
            number,
            title: title.to_owned(),
            host: full_name(),
            time: rfc3339(std::time::SystemTime::now()),
            reason: reason.to_owned(),
            processes: Vec::new(),
            gpus: Ok(Vec::new()),
            last_lines: Vec::new(),
        }
    }
}
