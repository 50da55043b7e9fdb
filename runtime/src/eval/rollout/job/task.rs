//! An attempt at a job, with what the journals say about the job before it. Pure: no I/O.

use std::collections::{BTreeMap, BTreeSet};

use jobs::assign::Work;
use jobs::episode::DemoRef;
use jobs::inputs::versions;
use jobs::job::{Job, JobIndex, Length};
use jobs::journal::Line;
use jobs::layout::RecordFormat;
use jobs::progress::{Progress, Suspects};
use serde_json::Value;

/// An attempt at a job.
pub struct Task {
    /// The part of the job that this rank runs.
    pub work: Work,
    /// Whether the rank runs it under leases.
    pub is_leased: bool,
    /// Number of earlier failures of the job in this rank.
    pub attempt: u32,
    /// Numbers of the finished episodes that belong to `work`, ascending.
    pub done: Vec<u64>,
    /// Number of those episodes that were successful.
    pub solved: u64,
    /// Whether nothing of `work` is left to run.
    pub is_finished: bool,
    /// Episodes that may have killed a rank.
    pub suspects: Suspects,
    /// The settings with which the job was started first, if an episode was run with them.
    settings: Option<BTreeMap<String, Value>>,
    /// The demonstrations that journal lines name, each with its episode.
    demos: Vec<(u64, DemoRef)>,
}

impl Task {
    /// Reads the journal `lines` about the job of `work`.
    pub fn new(
        work: &Work,
        is_leased: bool,
        attempt: u32,
        lines: &[&Line],
        suspects: &Suspects,
    ) -> Self {
        let job = &work.job;
        let progress = Progress::of(job.index, lines.iter().copied());
        let done = progress.done().filter(|episode| work.runs(*episode));
        let done: Vec<_> = match job.length {
            // An interrupted job in steps starts from the beginning: its episodes are not those of
            // an earlier attempt.
            Length::Steps(_) => Vec::new(),
            Length::Episodes(_) | Length::Policy => done.collect(),
        };
        let solved = done.iter().filter(|episode| progress.is_solved(**episode));
        let first = lines.iter().find_map(|line| match line {
            Line::JobStart(start) => Some(&start.settings),
            _ => None,
        });
        let has_episode = lines.iter().any(|line| matches!(line, Line::Episode(_)));
        Self {
            is_leased,
            attempt,
            solved: solved.count() as u64,
            is_finished: match job.length {
                Length::Episodes(_) => work.is_done(&done),
                Length::Steps(_) | Length::Policy => progress.is_finished(job, work.share),
            },
            done,
            suspects: suspects.clone(),
            settings: first.filter(|_| has_episode).cloned(),
            demos: demos_of(lines)
                .map(|(episode, demo)| (episode, demo.clone()))
                .collect(),
            work: work.clone(),
        }
    }

    /// Returns the job.
    pub fn job(&self) -> &Job {
        &self.work.job
    }

    /// Returns the index of the job.
    pub fn index(&self) -> JobIndex {
        self.work.job.index
    }

    /// Returns whether an episode still has to run.
    pub fn is_left(&self, episode: u64) -> bool {
        self.done.binary_search(&episode).is_err()
    }

    /// Returns the packages that the job has had in another version, as far as an episode was run
    /// with it, as in `env_versions.numpy 2.1.0 → 2.2.0`.
    pub fn other_versions(&self, settings: &BTreeMap<String, Value>) -> Vec<String> {
        let before = self.settings.as_ref();
        let others = before.map(|before| versions::others(before, settings));
        let others = others.into_iter().flatten();
        others
            .map(|other| format!("{} {} → {}", other.package, other.before, other.now))
            .collect()
    }

    /// Returns the demonstrations of a dataset that journal lines name, and those of them whose
    /// episodes this rank runs again: a job in steps starts over.
    pub fn demos(&self, file: &str) -> [BTreeSet<String>; 2] {
        let starts_over = matches!(self.work.job.length, Length::Steps(_));
        let runs_again = |(episode, _): &&(u64, DemoRef)| starts_over && self.work.runs(*episode);
        let again = self.demos.iter().filter(runs_again);
        [
            demos_in(self.demos.iter().map(|(_, demo)| demo), file),
            demos_in(again.map(|(_, demo)| demo), file),
        ]
    }

    /// Returns the first free demonstration number of a dataset: one more than the highest in the
    /// journals, whether the file still exists or not.
    pub fn first_demo(&self, format: RecordFormat, file: &str) -> u64 {
        let demos = self.demos.iter().filter(|(_, demo)| demo.file == file);
        let numbers = demos.filter_map(|(_, demo)| format.demo_number(&demo.demo));
        numbers.max().map_or(0, |last| last + 1)
    }
}

/// Returns the names of those demonstrations that are in the dataset `file`.
pub fn demos_in<'a>(demos: impl Iterator<Item = &'a DemoRef>, file: &str) -> BTreeSet<String> {
    let demos = demos.filter(|demo| demo.file == file);
    demos.map(|demo| demo.demo.clone()).collect()
}

/// Returns the demonstrations that lines name, each with its episode.
pub fn demos_of<'a>(lines: &[&'a Line]) -> impl Iterator<Item = (u64, &'a DemoRef)> {
    lines.iter().filter_map(|line| match line {
        Line::Episode(episode) => Some((episode.episode, episode.dataset.as_ref()?)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::assign::{self, Assignment};
    use jobs::journal::JobStart;
    use jobs::placement::Placement;
    use jobs::samples;
    use serde_json::json;

    #[test]
    fn other_versions_count_if_an_episode_was_run_with_the_former() {
        let settings = |version: &str| -> BTreeMap<String, Value> {
            [("env_versions".to_owned(), json!({"numpy": version}))].into()
        };
        let start = Line::JobStart(JobStart {
            settings: settings("2.1"),
            ..JobStart::default()
        });
        let episode = Line::from(samples::episode(0, "a", 0));
        let jobs = crate::eval::tests::jobs([json!({})]);
        let placement = Placement::of_ranks(vec![0]);
        let work = assign::work(&jobs, &placement, Assignment::default(), 0).remove(0);
        let found = |lines: &[&Line], version: &str| {
            let task = Task::new(&work, false, 0, lines, &Suspects::default());
            task.other_versions(&settings(version))
        };
        assert!(found(&[&start], "2.2").is_empty());
        assert!(found(&[&start, &episode], "2.1").is_empty());
        let expected = ["env_versions.numpy 2.1 → 2.2"];
        assert_eq!(found(&[&start, &episode], "2.2"), expected);
    }
}
