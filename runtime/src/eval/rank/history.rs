//! The history of a run: the journal lines that earlier attempts of any rank wrote.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use jobs::job::JobIndex;
use jobs::journal::{self, Contents, Line};
use jobs::plan::RunPlan;
use jobs::rank_env::RankEnv;
use jobs::suspects::Suspects;

use crate::eval::error::RankError;
use crate::eval::monitor::progress::Progress;
use crate::eval::setup::rank_setup::RankSetup;

/// The journal lines that earlier attempts of any rank wrote.
#[derive(Debug, Default)]
pub struct JournalHistory {
    /// The lines of all journals, see [`kept`]; those of this rank's own journal are last.
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
    /// UTC time at which this launch began: the first start of any of its ranks, as far as the
    /// journals know; empty before their first lines. What a faster rank has done since then is not
    /// earlier work.
    pub launched: String,
}

impl JournalHistory {
    /// Reads what a rank has to know at its start: all journals, or only its own if nothing in the
    /// others can be for it. Thousands of ranks that begin a run together would otherwise open
    /// millions of files.
    ///
    /// # Errors
    /// Returns [`RankError::Journals`] if the journals cannot be read.
    pub fn begin(setup: &RankSetup, progress: &Progress) -> Result<Self, RankError> {
        if setup.env.rank == 0 || !is_first_start(&setup.plan, &setup.env) {
            return Self::read(setup, progress);
        }
        let mut history = Self::default();
        history.refresh_own(setup)?;
        Ok(history)
    }

    /// Reads all journals of the run. Rank 0 warns the user of lines that are left out.
    fn read(setup: &RankSetup, progress: &Progress) -> Result<Self, RankError> {
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
            let contents = journal::read_one(path, &accepted)?;
            if env.rank == 0 {
                // The torn line of a rank of this launch may be a line that is being written now.
                let is_live = of_launch.contains(path);
                for warning in left_out(path, &contents, is_live) {
                    progress.say(&format!("warning: {warning}"));
                }
            }
            history.add(contents.lines, env.launch.as_deref(), path == own);
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
            .map_err(|err| journals_err(setup, err))?;
        Ok(history)
    }

    /// Reads all journals again, because this rank takes over what another one has begun. What was
    /// read before is dropped first, so that a long history is never in memory twice.
    ///
    /// # Errors
    /// Returns [`RankError::Journals`] if the journals cannot be read; the history is then empty.
    pub fn refresh(&mut self, setup: &RankSetup, progress: &Progress) -> Result<(), RankError> {
        *self = Self::default();
        *self = Self::read(setup, progress)?;
        Ok(())
    }

    /// Reads this rank's own journal again, because it has written more lines.
    ///
    /// # Errors
    /// Returns [`RankError::Journals`] if it cannot be read; its lines are then missing.
    pub fn refresh_own(&mut self, setup: &RankSetup) -> Result<(), RankError> {
        self.drop_own();
        let RankSetup {
            folder, plan, env, ..
        } = setup;
        let contents = journal::read_one(&folder.journal(env.rank), &plan.accepted())
            .map_err(|err| journals_err(setup, err))?;
        self.add(contents.lines, env.launch.as_deref(), true);
        Ok(())
    }

    fn drop_own(&mut self) {
        self.lines.truncate(self.others);
        for indices in self.by_job.values_mut() {
            indices.retain(|index| *index < self.others);
        }
        self.suspects = self.suspects_of_others.clone();
    }

    /// Adds the lines of one journal. `is_own` says that this rank writes it; it is the last.
    fn add(&mut self, lines: Vec<Line>, launch: Option<&str>, is_own: bool) {
        self.suspects.add(&lines);
        let began = if is_own {
            let launch = this_launch(&lines, launch);
            self.given_up = failed_for_good(launch);
            launch.first().and_then(started)
        } else {
            named(&lines, launch).and_then(|first| started(&lines[first]))
        };
        self.began(began);
        for line in lines.into_iter().filter_map(kept) {
            if let Some(job) = line.job() {
                self.by_job.entry(job).or_default().push(self.lines.len());
            }
            self.lines.push(line);
        }
        if !is_own {
            self.others = self.lines.len();
            self.suspects_of_others.clone_from(&self.suspects);
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

/// Returns whether no other rank can have written a line that matters to a rank: this launch began
/// the run, and no rank of it has been lost, so that each still has the work that it began with.
fn is_first_start(plan: &RunPlan, env: &RankEnv) -> bool {
    let is_begun_here = env.launch.is_some() && plan.begun_by == env.launch;
    is_begun_here && env.round == 0 && env.restart_count == 0
}

fn journals_err(setup: &RankSetup, err: io::Error) -> RankError {
    RankError::Journals {
        folder: setup.folder.journals(),
        err,
    }
}

/// Returns what a rank keeps of a line as long as it runs: nothing of the start of an episode, which
/// only tells who is suspect, and of its end only what decides what is left to do.
fn kept(line: Line) -> Option<Line> {
    match line {
        Line::EpisodeStart(_) => None,
        Line::Episode(mut episode) => {
            episode.job = String::new();
            episode.language_instruction = String::new();
            episode.metrics = BTreeMap::new();
            (episode.video, episode.episode_video) = (None, None);
            Some(Line::Episode(episode))
        }
        line => Some(line),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::journal::{EpisodeStart, JobEnd, RankStart};
    use jobs::samples;
    use serde_json::json;

    #[test]
    fn a_launch_began_with_the_first_of_its_ranks() {
        let mut history = JournalHistory::default();
        // Rank 1 was faster; rank 2 is of an earlier launch.
        for (launch, second) in [("b", 30), ("b", 20), ("a", 10)] {
            let lines = [Line::Rank(Box::new(RankStart {
                launch: Some(launch.to_owned()),
                started: format!("2026-01-01T00:00:{second}.000Z"),
                ..RankStart::default()
            }))];
            let first = named(&lines, Some("b"));
            history.began(first.and_then(|first| started(&lines[first])));
        }
        assert_eq!(history.launched, "2026-01-01T00:00:20.000Z");
    }

    #[test]
    fn a_job_is_given_up_for_the_launch_in_which_it_failed() {
        let life = |restart| {
            Line::Rank(Box::new(RankStart {
                restart,
                ..RankStart::default()
            }))
        };
        let failed = |retried| {
            Line::JobEnd(Box::new(JobEnd {
                error: Some("x".to_owned()),
                retried,
                ..JobEnd::default()
            }))
        };
        let given_up = |lines: &[Line]| failed_for_good(this_launch(lines, None));
        let one = BTreeSet::from([JobIndex(0)]);
        assert_eq!(given_up(&[life(0), failed(true)]), BTreeSet::new());
        assert_eq!(given_up(&[life(0), failed(false), life(1)]), one);
        assert_eq!(
            given_up(&[life(0), failed(false), life(0)]),
            BTreeSet::new()
        );
    }

    #[test]
    fn a_launch_is_known_by_its_name_and_one_without_by_the_restarts() {
        let life = |restart, launch: &str| {
            let launch = Some(launch.to_owned());
            Line::Rank(Box::new(RankStart {
                restart,
                launch,
                ..RankStart::default()
            }))
        };
        let lines = [
            life(0, "a"),
            life(0, "b"),
            life(1, "b"),
            life(0, "b"),
            life(1, "c"),
        ];
        assert_eq!(this_launch(&lines[..4], Some("b")), &lines[1..4]);
        assert_eq!(this_launch(&lines, Some("c")), &lines[3..]);
        assert_eq!(this_launch(&lines[..3], None), &lines[1..3]);
    }

    #[test]
    fn a_rank_that_reads_its_own_journal_again_keeps_what_others_did() {
        let life = |restart| {
            Line::Rank(Box::new(RankStart {
                restart,
                ..RankStart::default()
            }))
        };
        let began = |episode| {
            Line::EpisodeStart(EpisodeStart {
                episode,
                ..EpisodeStart::default()
            })
        };
        let ended = |episode| Line::from(samples::episode(0, "a", episode));
        let mut history = JournalHistory::default();
        history.add(vec![life(0), ended(1), began(2), life(1)], None, false);
        let own = |count| {
            let lines = vec![life(0), began(3), life(1), ended(4), ended(5)];
            lines.into_iter().take(count).collect::<Vec<_>>()
        };
        let seen = |history: &JournalHistory| {
            let done = jobs::progress::done(history.about(JobIndex(0)));
            (done[&JobIndex(0)].clone(), history.suspects.of(JobIndex(0)))
        };
        history.add(own(4), None, true);
        assert_eq!(seen(&history), (vec![1, 4], BTreeSet::from([2, 3])));
        history.drop_own();
        assert_eq!(seen(&history), (vec![1], BTreeSet::from([2])));
        history.add(own(5), None, true);
        assert_eq!(seen(&history), (vec![1, 4, 5], BTreeSet::from([2, 3])));
    }

    #[test]
    fn only_a_rank_that_begins_the_run_with_its_launch_reads_no_other_journals() {
        let is_first = |begun_by: Option<&str>, launch: Option<&str>, round, restart_count| {
            let plan = RunPlan {
                begun_by: begun_by.map(str::to_owned),
                ..RunPlan::default()
            };
            let mut env = RankEnv::read(|_| None).unwrap();
            env.launch = launch.map(str::to_owned);
            (env.round, env.restart_count) = (round, restart_count);
            is_first_start(&plan, &env)
        };
        assert!(is_first(Some("a"), Some("a"), 0, 0));
        assert!(!is_first(Some("a"), Some("b"), 0, 0));
        assert!(!is_first(Some("a"), Some("a"), 1, 0));
        assert!(!is_first(Some("a"), Some("a"), 0, 1));
        assert!(!is_first(None, None, 0, 0));
    }

    #[test]
    fn a_rank_keeps_little_of_a_long_history() {
        let start = json!({"type": "episode_start", "job_index": 0, "episode": 1, "rank": 0,
                           "env": 0, "started": ""});
        let episode = Line::from(samples::episode(0, "a", 1));
        let mut history = JournalHistory::default();
        history.add(
            vec![serde_json::from_value(start).unwrap(), episode],
            None,
            false,
        );
        let [line] = history.about(JobIndex(0))[..] else {
            panic!("only the end is kept");
        };
        assert_eq!(jobs::progress::done([line])[&JobIndex(0)], [1]);
        assert!(size_of_val(line) < 200, "{} bytes", size_of_val(line));
    }
}
