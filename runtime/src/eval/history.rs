//! The history of a run: the journal lines that earlier attempts of any rank wrote.

use std::collections::{BTreeSet, HashMap};

use jobs::job::JobIndex;
use jobs::journal::{self, Line};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::rank_env::RankEnv;
use jobs::suspects::Suspects;

/// The journal lines that earlier attempts of any rank wrote.
#[derive(Debug, Default)]
pub struct History {
    /// All lines of all journals.
    pub lines: Vec<Line>,
    /// Indices of the lines about each job.
    by_job: HashMap<JobIndex, Vec<usize>>,
    /// Episodes that may have killed a rank.
    pub suspects: Suspects,
    /// Jobs that have failed for good in this rank, in this launch.
    pub given_up: BTreeSet<JobIndex>,
    /// UTC time at which this launch began for this rank; empty before its first line.
    pub launched: String,
    /// Notes for the user about the journal files.
    pub notes: Vec<String>,
}

impl History {
    /// Reads all journals of the run `plan`, for the rank described by `env`.
    ///
    /// # Errors
    /// Returns an error that names the folder if the journals cannot be read.
    pub fn read(folder: &RunFolder, plan: &RunPlan, env: &RankEnv) -> Result<Self, String> {
        let own = folder.journal(env.rank);
        let journals = journal::read_own(&folder.journals(), &plan.accepted()).map_err(|err| {
            format!(
                "cannot read the journals in `{}`: {err}",
                folder.journals().display()
            )
        })?;
        let mut history = Self::default();
        for (path, contents) in journals {
            history.suspects.add(&contents.lines);
            if path == own {
                let launch = this_launch(&contents.lines, env.launch.as_deref());
                history.given_up = failed_for_good(launch);
                history.launched = launch.first().and_then(started).unwrap_or_default();
            }
            // The torn line of a rank of this launch may be a line that is being written now.
            if contents.torn > 0 && (0..env.world_size).all(|rank| path != folder.journal(rank)) {
                let (path, torn) = (path.display(), contents.torn);
                history.notes.push(format!(
                    "`{path}` ends in a torn line: {torn} bytes are left out"
                ));
            }
            if !contents.foreign.is_empty() {
                let (path, foreign) = (path.display(), &contents.foreign);
                history.notes.push(format!(
                    "`{path}` lines {foreign:?} belong to another run, to a job that has changed since or to no episode of the plan, \
                     and are left out"
                ));
            }
            if !contents.damaged.is_empty() {
                let (path, damaged) = (path.display(), &contents.damaged);
                history.notes.push(format!(
                    "`{path}` lines {damaged:?} mean nothing and are left out"
                ));
            }
            for line in contents.lines {
                if let Some(job) = line.job() {
                    history
                        .by_job
                        .entry(job)
                        .or_default()
                        .push(history.lines.len());
                }
                history.lines.push(line);
            }
        }
        Ok(history)
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
    let is_named = |line: &&Line| matches!(line, Line::Rank(start) if start.launch.is_some() && start.launch.as_deref() == launch);
    let is_fresh = |line: &Line| matches!(line, Line::Rank(start) if start.restart == 0);
    let named = lines
        .iter()
        .position(|line| is_named(&line))
        .filter(|first| is_fresh(&lines[*first]));
    &lines[named
        .or_else(|| lines.iter().rposition(is_fresh))
        .unwrap_or(0)..]
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
    use jobs::journal::{JobEnd, RankStart};

    #[test]
    fn a_job_is_given_up_for_the_launch_in_which_it_failed() {
        let life = |restart| {
            Line::Rank(RankStart {
                restart,
                ..RankStart::default()
            })
        };
        let failed = |retried| {
            Line::JobEnd(JobEnd {
                error: Some("x".to_owned()),
                retried,
                ..JobEnd::default()
            })
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
            Line::Rank(RankStart {
                restart,
                launch,
                ..RankStart::default()
            })
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
}
