//! The history of a run: the journal lines that earlier attempts of any rank wrote.

mod extract;
mod start;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use jobs::job::JobIndex;
use jobs::journal::{self, Contents, Line};
use jobs::suspects::{Suspect, Suspects};
use serde::{Deserialize, Serialize};

use crate::eval::monitor::Monitor;
use crate::eval::rank::history::extract::ExtractWriter;
use crate::eval::setup::rank_setup::RankSetup;
use crate::eval::stop::Stop;
pub use start::{begin, is_first_life};

/// The journal lines that earlier attempts of any rank wrote.
#[derive(Debug, Default)]
pub struct JournalHistory {
    /// The lines of all journals that a rank keeps; those of this rank's own journal are last.
    pub lines: Vec<Line>,
    /// Number of lines of other ranks.
    others: usize,
    /// Indices of the lines about each job.
    by_job: HashMap<JobIndex, Vec<usize>>,
    /// Episodes that may have killed a rank.
    pub suspects: Suspects,
    /// Those that have killed other ranks.
    suspects_of_others: Suspects,
    /// Jobs that have failed for good in this rank, in this launch.
    pub given_up: BTreeSet<JobIndex>,
    /// How often this rank has begun in this round of the launch.
    starts: usize,
    /// UTC time at which this launch began: the first start of any of its ranks, as far as the
    /// journals know; empty before their first lines. What a faster rank has done since then is not
    /// earlier work.
    pub launched: String,
}

/// What a rank keeps of one journal.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalPart {
    /// Episodes that may have killed the rank of the journal.
    suspects: Vec<Suspect>,
    /// UTC time at which that rank began in this launch, if it did.
    began: Option<String>,
    /// The lines that decide what is left to do, in their order, with their jobs: names are not
    /// kept.
    lines: Vec<(Option<JobIndex>, Line)>,
}

impl JournalPart {
    /// Takes from the lines of a journal what is kept, in the launch of this name.
    fn of(lines: Vec<Line>, launch: Option<&str>) -> Self {
        let mut suspects = Suspects::default();
        suspects.add(&lines);
        let began = named(&lines, launch).and_then(|first| started(&lines[first]));
        Self {
            suspects: suspects.list(),
            began,
            lines: lines.into_iter().filter_map(kept).collect(),
        }
    }

    /// Sets the jobs of the lines, which they do not say themselves when they are read.
    fn with_jobs(mut self) -> Self {
        for (job, line) in &mut self.lines {
            if let Some(job) = job {
                line.set_job_index(*job);
            }
        }
        self
    }
}

/// Returns what a rank keeps of a line as long as it runs: what decides what is left to do, and
/// what policies are made of.
fn kept(line: Line) -> Option<(Option<JobIndex>, Line)> {
    let job = line.job().map(|(_, job)| job);
    match line {
        Line::Episode(mut episode) => {
            episode.job = String::new();
            episode.language_instruction = String::new();
            episode.metrics = BTreeMap::new();
            (episode.video, episode.episode_video) = (None, None);
            Some((job, Line::Episode(episode)))
        }
        Line::JobStart(_) | Line::JobEnd(_) | Line::PolicyFiles(_) => Some((job, line)),
        _ => None,
    }
}

impl JournalHistory {
    /// Reads all journals of the run, and writes what is kept of them into `extract`, which is gone
    /// after an error. Rank 0 warns the user of lines that are left out.
    fn read(
        setup: &RankSetup,
        monitor: &Monitor,
        extract: &mut Option<ExtractWriter>,
    ) -> Result<Self, Stop> {
        let RankSetup {
            folder, plan, env, ..
        } = setup;
        let accepted = plan.accepted();
        let of_launch: HashSet<_> = (0..env.world_size)
            .map(|rank| folder.journal(rank))
            .collect();
        let own = folder.journal(env.rank);
        let mut history = Self::default();
        let mut add = |path: &Path| {
            let contents = journal::read(path, &accepted)?;
            if env.rank == 0 {
                // The torn line of a rank of this launch may be a line that is being written now.
                let is_live = of_launch.contains(path);
                for warning in left_out(path, &contents, is_live) {
                    monitor.say(&format!("warning: {warning}"));
                }
            }
            if path == own {
                history.judge_own(&contents.lines, setup);
            }
            let part = JournalPart::of(contents.lines, env.launch.as_deref());
            extract.take_if(|extract| {
                let added = extract.add(&name(path), &part);
                added.inspect_err(start::not_written).is_err()
            });
            history.add(part, path == own);
            Ok(())
        };
        journal::files(&folder.journals())
            .and_then(|files| {
                let others = files.iter().filter(|path| **path != own);
                others
                    .map(PathBuf::as_path)
                    .chain([own.as_path()])
                    .try_for_each(&mut add)
            })
            .map_err(|err| journals_err(setup, &err))?;
        Ok(history)
    }

    /// Reads all journals again, because this rank takes over what another one has begun. What was
    /// read before is dropped first, so that a long history is never in memory twice.
    ///
    /// # Errors
    /// Returns a [`Stop`] if the journals cannot be read; the history is then empty.
    pub fn refresh(&mut self, setup: &RankSetup, monitor: &Monitor) -> Result<(), Stop> {
        *self = Self::default();
        *self = Self::read(setup, monitor, &mut None)?;
        Ok(())
    }

    /// Reads this rank's own journal again, because it has written more lines.
    ///
    /// # Errors
    /// Returns a [`Stop`] if it cannot be read; its lines are then missing.
    pub fn refresh_own(&mut self, setup: &RankSetup) -> Result<(), Stop> {
        self.drop_own();
        let RankSetup {
            folder, plan, env, ..
        } = setup;
        let contents = journal::read(&folder.journal(env.rank), &plan.accepted())
            .map_err(|err| journals_err(setup, &err))?;
        self.judge_own(&contents.lines, setup);
        self.add(JournalPart::of(contents.lines, env.launch.as_deref()), true);
        Ok(())
    }

    fn drop_own(&mut self) {
        self.lines.truncate(self.others);
        for indices in self.by_job.values_mut() {
            indices.retain(|index| *index < self.others);
        }
        self.suspects = self.suspects_of_others.clone();
    }

    /// Takes note of what the lines of this rank's own journal say about its launch.
    fn judge_own(&mut self, lines: &[Line], RankSetup { env, .. }: &RankSetup) {
        let launch = this_launch(lines, env.launch.as_deref());
        self.given_up = failed_for_good(launch);
        self.began(launch.first().and_then(started));
        let begins = |line: &&Line| match line {
            Line::Rank(start) => start.round == env.round && start.launch == env.launch,
            _ => false,
        };
        self.starts = lines.iter().filter(begins).count();
    }

    /// Adds one journal. `is_own` says that this rank writes it; it is the last.
    fn add(&mut self, part: JournalPart, is_own: bool) {
        let suspects = Suspects::from_list(&part.suspects);
        self.suspects.include(&suspects);
        self.began(part.began);
        for (job, line) in part.lines {
            if let Some(job) = job {
                self.by_job.entry(job).or_default().push(self.lines.len());
            }
            self.lines.push(line);
        }
        if !is_own {
            self.others = self.lines.len();
            self.suspects_of_others.include(&suspects);
        }
    }

    /// Takes note of when a rank of this launch began.
    fn began(&mut self, at: Option<String>) {
        if let Some(at) = at
            && (self.launched.is_empty() || at < self.launched)
        {
            self.launched = at;
        }
    }

    /// Returns the lines about one job.
    pub fn about(&self, job: JobIndex) -> Vec<&Line> {
        self.by_job
            .get(&job)
            .into_iter()
            .flatten()
            .map(|at| &self.lines[*at])
            .collect()
    }
}

/// Returns the lines since this rank's launch began. A launcher that does not name its launches
/// gives each restart a new name; then the restart counter tells where the launch began.
fn this_launch<'a>(lines: &'a [Line], launch: Option<&str>) -> &'a [Line] {
    let first = named(lines, launch)
        .or_else(|| lines.iter().rposition(is_fresh))
        .unwrap_or(0);
    &lines[first..]
}

/// Returns the index of the line with which a rank began in the launch of this name.
fn named(lines: &[Line], launch: Option<&str>) -> Option<usize> {
    let launch = launch?;
    let is_named =
        |line: &Line| matches!(line, Line::Rank(start) if start.launch.as_deref() == Some(launch));
    lines
        .iter()
        .position(is_named)
        .filter(|first| is_fresh(&lines[*first]))
}

fn is_fresh(line: &Line) -> bool {
    matches!(line, Line::Rank(start) if start.restart == 0)
}

/// Returns when the rank began that wrote this line at its start.
fn started(line: &Line) -> Option<String> {
    if let Line::Rank(start) = line {
        Some(start.started.clone())
    } else {
        None
    }
}

/// Returns the jobs that have failed and are not retried.
fn failed_for_good(launch: &[Line]) -> BTreeSet<JobIndex> {
    let failed = launch.iter().filter_map(|line| match line {
        Line::JobEnd(end) if end.error.is_some() && !end.retried => Some(end.job_index),
        _ => None,
    });
    failed.collect()
}

fn journals_err(setup: &RankSetup, err: &io::Error) -> Stop {
    let folder = setup.folder.journals();
    let what = format_args!("cannot read the journals in `{}`", folder.display());
    Stop::rank(what, err)
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns what the user has to know about the lines of a journal that are no results. `is_live`
/// says that a rank of this launch may be writing it.
fn left_out(path: &Path, contents: &Contents, is_live: bool) -> Vec<String> {
    let (path, torn) = (path.display(), contents.torn);
    let mut warnings = Vec::new();
    if torn > 0 && !is_live {
        warnings.push(format!(
            "`{path}` ends in a torn line: {torn} bytes are left out"
        ));
    }
    if !contents.foreign.is_empty() {
        let foreign = &contents.foreign;
        warnings.push(format!(
            "`{path}` lines {foreign:?} belong to another run, to a job that has changed since \
             or to no episode of the plan, and are left out"
        ));
    }
    if !contents.damaged.is_empty() {
        let damaged = &contents.damaged;
        warnings.push(format!(
            "`{path}` lines {damaged:?} are damaged and left out"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests;
