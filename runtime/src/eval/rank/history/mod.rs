//! The history of a run: the journal lines that earlier attempts of any rank wrote.

mod extract;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::Path;
use std::time::Duration;

use jobs::job::JobIndex;
use jobs::journal::{self, Contents, Line};
use jobs::plan::RunPlan;
use jobs::progress::Suspects;
use jobs::rank_env::RankEnv;
use serde::{Deserialize, Serialize};
use tcpstore::Store;

use crate::eval::Stop;
use crate::eval::monitor::Monitor;
use crate::eval::rank::history::extract::Extract;
use crate::eval::rank_setup::RankSetup;

/// From this world size on, rank 0 reads the journals for all ranks when a round begins. With fewer
/// ranks it is better that none waits for another.
const SHARED_FROM: usize = 64;

/// The key under which rank 0 tells the others where they find what it has read.
const HISTORY: &str = "history";

/// Time that the other ranks wait for rank 0. Without an answer they read the journals themselves.
const TOLD: Duration = Duration::from_secs(120);

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
    suspects: Suspects,
    /// UTC time at which that rank began in this launch, if it did.
    began: Option<String>,
    /// The lines that decide what is left to do, in their order, with their jobs: names are not
    /// kept, and lines that are read do not say the index.
    lines: Vec<(Option<JobIndex>, Line)>,
}

impl JournalPart {
    /// Takes from the lines of a journal what is kept.
    fn of(lines: Vec<Line>, env: &RankEnv) -> Self {
        let mut suspects = Suspects::default();
        suspects.add(&lines);
        let first = named(&lines, env.launch.as_deref());
        Self {
            suspects,
            began: first.and_then(|first| started(&lines[first])),
            lines: lines.into_iter().filter_map(kept).collect(),
        }
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

/// Where a rank finds at its start what it has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// In its own journal: no other can have a line for it.
    Own,
    /// In all journals.
    All,
    /// In all journals, of which rank 0 writes an extract for the others.
    Shared,
}

impl Source {
    /// Determines the source of a rank. `begins` says that the rank has not started in this round
    /// before, and that the world is large enough for extracts.
    fn new(plan: &RunPlan, env: &RankEnv, begins: bool) -> Self {
        let is_first_round = is_first_round(plan, env);
        match env.rank {
            1.. if is_first_round && env.restart_count == 0 => Self::Own,
            _ if begins && !is_first_round => Self::Shared,
            _ => Self::All,
        }
    }
}

impl JournalHistory {
    /// Reads what a rank has to know at its start. Thousands of ranks that begin together would
    /// open millions of files if each of them read all journals, so they read only their own if
    /// nothing in the others can be for them, and otherwise what rank 0 has written for them. Rank
    /// 0 keeps the extract as long as it runs.
    ///
    /// # Errors
    /// Returns a [`Stop`] if the journals cannot be read.
    pub fn begin(setup: &RankSetup, monitor: &Monitor) -> Result<(Self, Option<Extract>), Stop> {
        let RankSetup {
            plan, env, folder, ..
        } = setup;
        let (mut past, mut extract) = (Self::default(), None);
        let store = monitor.peers.eval_store.as_ref();
        let store = store.filter(|_| env.world_size >= SHARED_FROM);
        let begins = match store {
            None => false,
            Some(store) if env.rank == 0 => store.check(HISTORY).is_ok_and(|is_told| !is_told),
            Some(_) => {
                past.refresh_own(setup)?;
                past.starts <= 1
            }
        };
        match (Source::new(plan, env, begins), store) {
            (Source::Own, _) => past.refresh_own(setup)?,
            (Source::Shared, Some(store)) if env.rank == 0 => {
                extract = Extract::create(&folder.journals())
                    .inspect_err(not_written)
                    .ok();
                past.read(setup, monitor, &mut extract)?;
                let finished = extract.as_mut().map(Extract::finish);
                let said = finished.and_then(|said| said.inspect_err(not_written).ok());
                // If this fails, the others read the journals after a time limit.
                let _ = store.set(HISTORY, said.unwrap_or_default().as_bytes());
            }
            (Source::Shared, Some(store)) => {
                if let Err(reason) = past.read_extract(setup, store) {
                    tracing::info!(reason, "reads all journals, without the extract of rank 0");
                    past.refresh(setup, monitor)?;
                }
            }
            _ => past.refresh(setup, monitor)?,
        }
        Ok((past, extract))
    }

    /// Reads the extract of rank 0, and this rank's own journal.
    fn read_extract(&mut self, setup: &RankSetup, store: &Store) -> Result<(), String> {
        let said = store.get(HISTORY, TOLD).map_err(|err| err.to_string())?;
        let said = String::from_utf8_lossy(&said);
        let folder = &setup.folder;
        let own = name(&folder.journal(setup.env.rank));
        let parts = extract::read(&folder.journals(), &said, &own);
        *self = Self::default();
        for part in parts.map_err(|err| err.to_string())? {
            self.add(part, false);
        }
        tracing::info!(
            lines = self.lines.len(),
            "has read the extract of rank 0 instead of all journals"
        );
        self.refresh_own(setup).map_err(|err| err.to_string())
    }

    /// Reads all journals again, because this rank takes over what another one has begun.
    ///
    /// # Errors
    /// Returns a [`Stop`] if the journals cannot be read; the history is then not complete.
    pub fn refresh(&mut self, setup: &RankSetup, monitor: &Monitor) -> Result<(), Stop> {
        self.read(setup, monitor, &mut None)
    }

    /// Reads all journals of the run, and writes what is kept of them into `extract`, which is gone
    /// after an error. What was read before is dropped first, so that a long history is never in
    /// memory twice. Rank 0 warns the user of lines that are left out.
    fn read(
        &mut self,
        setup: &RankSetup,
        monitor: &Monitor,
        extract: &mut Option<Extract>,
    ) -> Result<(), Stop> {
        let RankSetup {
            folder, plan, env, ..
        } = setup;
        *self = Self::default();
        let of_launch = (0..env.world_size).map(|rank| folder.journal(rank));
        let of_launch: HashSet<_> = of_launch.collect();
        let (accepted, own) = (plan.accepted(), folder.journal(env.rank));
        let files = journal::files(&folder.journals());
        let files = files.map_err(|err| journals_err(setup, &err))?;
        for path in files.iter().filter(|path| **path != own).chain([&own]) {
            let contents = journal::read(path, &accepted);
            let contents = contents.map_err(|err| journals_err(setup, &err))?;
            if env.rank == 0 {
                // The torn line of a rank of this launch may be a line that is being written now.
                for warning in left_out(path, &contents, of_launch.contains(path)) {
                    monitor.say(&format!("warning: {warning}"));
                }
            }
            if *path == own {
                self.judge_own(&contents.lines, env);
            }
            let part = JournalPart::of(contents.lines, env);
            extract.take_if(|extract| {
                let added = extract.add(&name(path), &part);
                added.inspect_err(not_written).is_err()
            });
            self.add(part, *path == own);
        }
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
        let contents = journal::read(&folder.journal(env.rank), &plan.accepted());
        let contents = contents.map_err(|err| journals_err(setup, &err))?;
        self.judge_own(&contents.lines, env);
        self.add(JournalPart::of(contents.lines, env), true);
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
    fn judge_own(&mut self, lines: &[Line], env: &RankEnv) {
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
        self.suspects.include(&part.suspects);
        self.began(part.began);
        for (job, line) in part.lines {
            if let Some(job) = job {
                self.by_job.entry(job).or_default().push(self.lines.len());
            }
            self.lines.push(line);
        }
        if !is_own {
            self.others = self.lines.len();
            self.suspects_of_others.include(&part.suspects);
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
        let indices = self.by_job.get(&job).into_iter().flatten();
        indices.map(|at| &self.lines[*at]).collect()
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
    let first = lines.iter().position(is_named)?;
    is_fresh(&lines[first]).then_some(first)
}

fn is_fresh(line: &Line) -> bool {
    matches!(line, Line::Rank(start) if start.restart == 0)
}

/// Whether this launch began the run, so that there was nothing to read when its ranks started, and
/// no rank has been lost, so that each still has the work that it began with.
fn is_first_round(plan: &RunPlan, env: &RankEnv) -> bool {
    env.launch.is_some() && plan.begun_by == env.launch && env.round == 0
}

/// Returns whether nothing of the run was there before this rank started.
pub fn is_first_life(RankSetup { plan, env, .. }: &RankSetup) -> bool {
    is_first_round(plan, env) && env.restart_count == 0
}

fn not_written(err: &io::Error) {
    tracing::warn!(%err, "cannot write an extract of the journals");
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
    let (torn, foreign, damaged) = (contents.torn, &contents.foreign, &contents.damaged);
    let mut warnings = Vec::new();
    if torn > 0 && !is_live {
        warnings.push(format!("ends in a torn line: {torn} bytes are left out"));
    }
    if !foreign.is_empty() {
        warnings.push(format!(
            "lines {foreign:?} belong to another run, to a job that has changed since or to no \
             episode of the plan, and are left out"
        ));
    }
    if !damaged.is_empty() {
        warnings.push(format!("lines {damaged:?} are damaged and left out"));
    }
    let about = |warning| format!("`{}` {warning}", path.display());
    warnings.into_iter().map(about).collect()
}

#[cfg(test)]
mod tests;
