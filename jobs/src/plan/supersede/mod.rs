//! Replaces the jobs of a run: the files and lines that do not stay move to `superseded/<n>`, all
//! of them or none.
//!
//! ```text
//! 1 prepare  superseded/<n>/plan.json   a copy of the current plan
//! 2 decide   plan.json                  the new plan, which says in `moving` what is left to do
//! 3 move     folders of jobs, reports and journals; then write the lines that stay
//! 4 done     plan.json                  without `moving`
//! ```
//! If the process is killed before step 2, the run is as it was, and the next replacement takes the
//! same folder. If it is killed after step 2, the next start goes through steps 3 and 4 again,
//! which leave alone what was already moved. All of this happens under the lock of the plan, while
//! nobody writes a journal.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::journal::{self, Line};
use crate::layout::{RunFolder, write_whole};
use crate::plan::RunPlan;
use crate::plan::difference::Difference;

/// What is left to move, in a plan that has replaced another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// Number of the folder in `superseded`.
    pub to: u32,
    /// The jobs that do not stay.
    pub jobs: Vec<String>,
}

impl Moving {
    fn folder(&self, run: &RunFolder) -> RunFolder {
        superseded(run, self.to)
    }
}

fn superseded(run: &RunFolder, number: u32) -> RunFolder {
    RunFolder::new(&run.superseded().join(number.to_string()))
}

/// Returns the folder of a run's journals, which may already have moved.
pub(super) fn journals(run: &RunFolder, plan: &RunPlan) -> PathBuf {
    let moved = plan.moving.as_ref();
    let moved = moved.map(|moving| moving.folder(run).journals());
    moved
        .filter(|journals| journals.exists())
        .unwrap_or_else(|| run.journals())
}

/// Replaces the plan of a run by `next`. What does not stay moves to a folder of its own.
pub(super) fn supersede(
    run: &RunFolder,
    next: RunPlan,
    difference: &Difference,
) -> io::Result<RunPlan> {
    let next = decide(run, next, difference)?;
    finish(run, next)
}

/// Steps 1 and 2.
fn decide(run: &RunFolder, next: RunPlan, difference: &Difference) -> io::Result<RunPlan> {
    real_folder(&run.superseded())?;
    let leaving = difference.jobs.iter().filter(|job| !job.stays());
    let moving = Moving {
        to: free_number(run),
        jobs: leaving.map(|job| job.name.clone()).collect(),
    };
    let to = moving.folder(run);
    fs::create_dir_all(to.root())?;
    real_folder(to.root())?;
    write_whole(&to.plan(), &files::read(&run.plan(), MAX_DOCUMENT_BYTES)?)?;
    sync(to.root())?;
    sync(&run.superseded())?;
    let next = RunPlan {
        moving: Some(moving),
        ..next
    };
    next.write(run)?;
    sync(run.root())?;
    Ok(next)
}

/// Returns the number after the highest that is there, or the highest if it has nothing but the
/// plan that a killed start has left.
fn free_number(run: &RunFolder) -> u32 {
    let entries = fs::read_dir(run.superseded())
        .into_iter()
        .flatten()
        .flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let highest: u32 = numbers.max().unwrap_or(0);
    let to = superseded(run, highest);
    let is_left = |entries: fs::ReadDir| entries.flatten().all(|entry| entry.path() == to.plan());
    match fs::read_dir(to.root()).is_ok_and(is_left) {
        true => highest,
        false => highest.saturating_add(1),
    }
}

/// Steps 3 and 4, if the plan has left anything to move. Returns the plan without that.
pub(super) fn finish(run: &RunFolder, mut plan: RunPlan) -> io::Result<RunPlan> {
    let Some(moving) = plan.moving.take() else {
        return Ok(plan);
    };
    let to = moving.folder(run);
    for folder in [run.superseded(), to.root().to_owned(), to.journals()] {
        real_folder(&folder)?;
    }
    fs::create_dir_all(to.root())?;
    let jobs = moving.jobs.iter().map(|name| run.job(name));
    let leaving = jobs.chain(run.reports()).chain([run.journals()]);
    leaving.into_iter().try_for_each(|path| away(&path, &to))?;
    carry(&plan, &moving, [&to.journals(), &run.journals()])?;
    sync(to.root())?;
    sync(run.root())?;
    plan.write(run)?;
    Ok(plan)
}

/// Moves a file or folder of a run, unless it was already moved or never there.
fn away(path: &Path, to: &RunFolder) -> io::Result<()> {
    let moved = to.root().join(path.file_name().unwrap_or_default());
    if moved.symlink_metadata().is_ok() {
        return Ok(());
    }
    match fs::rename(path, &moved) {
        Err(err) if err.kind() != ErrorKind::NotFound => {
            let moved = moved.display();
            let reason = format!("`{}` cannot become `{moved}`: {err}", path.display());
            Err(io::Error::new(err.kind(), reason))
        }
        _ => Ok(()),
    }
}

/// Writes the lines that stay from one folder of journals to another. A journal that would be empty
/// is left out.
fn carry(plan: &RunPlan, moving: &Moving, [from, to]: [&Path; 2]) -> io::Result<()> {
    let leaving: HashSet<&String> = moving.jobs.iter().collect();
    let staying = plan.jobs.iter().filter(|job| !leaving.contains(&job.name));
    let staying: HashMap<&str, Option<u64>> =
        staying.map(|job| (&*job.name, job.episodes())).collect();
    fs::create_dir_all(to)?;
    for path in journal::files(from)? {
        let mut text = Vec::new();
        journal::each(&path, |line, written| {
            if stays(&line, &staying) {
                text.extend(written);
                text.push(b'\n');
            }
        })?;
        if let (Some(name), false) = (path.file_name(), text.is_empty()) {
            write_whole(&to.join(name), &text)?;
        }
    }
    sync(to)
}

/// Returns whether a line stays with these jobs, of which episodes from a number on do not stay.
fn stays(line: &Line, jobs: &HashMap<&str, Option<u64>>) -> bool {
    // They are about the jobs as they were. Files are hashed again at the next start.
    if let Line::Decision(_) | Line::PolicyFiles(_) = line {
        return false;
    }
    let Some((name, _)) = line.job() else {
        return true;
    };
    let episode = line.episode();
    let end = jobs.get(name);
    end.is_some_and(|end| episode.zip(*end).is_none_or(|(episode, end)| episode < end))
}

/// Refuses a symbolic link where a folder is expected, because files would be moved through it out
/// of the run folder.
fn real_folder(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => {
            let reason = "cannot be used: it is not a folder, or it is a link to one";
            let reason = format!("`{}` {reason}", path.display());
            Err(io::Error::new(ErrorKind::InvalidData, reason))
        }
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(()),
        Err(err) => Err(err),
    }
}

/// Syncs a folder, so that the names in it are on the disk.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
