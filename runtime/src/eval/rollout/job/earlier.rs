//! What the journals say about a job before an attempt at it. Pure: no I/O.

use std::collections::{BTreeMap, BTreeSet};

use jobs::assign::Work;
use jobs::inputs::versions;
use jobs::job::Length;
use jobs::journal::Line;
use jobs::progress;
use jobs::record_format::RecordFormat;
use jobs::suspects::Suspects;
use serde_json::Value;

/// What earlier attempts recorded about a job.
pub struct Earlier<'a> {
    /// Numbers of the finished episodes that belong to this rank's work, ascending.
    pub done: Vec<u64>,
    /// Number of those episodes that were successful.
    pub solved: u64,
    /// Journal lines about the job.
    lines: Vec<&'a Line>,
    /// Episodes that may have killed a rank.
    pub suspects: &'a Suspects,
    /// Number of earlier failures of the job in this rank.
    pub attempt: u32,
}

impl<'a> Earlier<'a> {
    /// Reads the journal lines about the job of `work`.
    pub fn of(work: &Work, lines: Vec<&'a Line>, suspects: &'a Suspects, attempt: u32) -> Self {
        let job = &work.job;
        // An interrupted job in steps starts from the beginning: its episodes are not those of an
        // earlier attempt.
        let counted = match job.length {
            Length::Steps(_) => Vec::new(),
            Length::Episodes(_) | Length::Policy => lines.clone(),
        };
        let mut done = progress::done(counted.iter().copied())
            .remove(&job.index)
            .unwrap_or_default();
        done.retain(|episode| work.runs(*episode));
        let is_own = |line: &&Line| episode_of(line).is_none_or(|episode| work.runs(episode));
        let solved = progress::solved(counted.into_iter().filter(is_own), job.index);
        Self {
            done,
            solved,
            lines,
            suspects,
            attempt,
        }
    }

    /// Returns whether nothing of `work` is left to run.
    pub fn is_finished(&self, work: &Work) -> bool {
        match work.job.length {
            Length::Episodes(_) => work.is_done(&self.done),
            Length::Steps(_) | Length::Policy => {
                progress::finished(self.lines.iter().copied(), &work.job, work.share)
            }
        }
    }

    /// Returns whether an episode still has to run.
    pub fn is_left(&self, episode: u64) -> bool {
        self.done.binary_search(&episode).is_err()
    }

    /// Returns the packages that the job has had in another version, as far as an episode was run
    /// with it, as in `env_versions.numpy 2.1.0 → 2.2.0`.
    pub fn other_versions(&self, settings: &BTreeMap<String, Value>) -> Vec<String> {
        let before = self.lines.iter().find_map(|line| match line {
            Line::JobStart(start) => Some(&start.settings),
            _ => None,
        });
        let has_episode = self
            .lines
            .iter()
            .any(|line| matches!(line, Line::Episode(_)));
        let before = before.filter(|_| has_episode);
        let others = before.map(|before| versions::others(before, settings));
        others
            .into_iter()
            .flatten()
            .map(|other| format!("{} {} → {}", other.package, other.before, other.now))
            .collect()
    }

    /// Returns the demonstrations of a dataset that journal lines name, and those of them whose
    /// episodes this rank runs again: a job in steps starts over.
    pub fn demos(&self, work: &Work, file: &str) -> [BTreeSet<String>; 2] {
        let starts_over = matches!(work.job.length, Length::Steps(_));
        let runs_again = |line: &&Line| {
            let episode = episode_of(line);
            starts_over && episode.is_some_and(|episode| work.runs(episode))
        };
        let again: Vec<_> = self.lines.iter().copied().filter(runs_again).collect();
        [demos_in(&self.lines, file), demos_in(&again, file)]
    }

    /// Returns the first free demonstration number of a dataset: one more than the highest in the
    /// journals, whether the file still exists or not.
    pub fn first_demo(&self, format: RecordFormat, file: &str) -> u64 {
        let demos = self.lines.iter().filter_map(|line| match line {
            Line::Episode(episode) => episode.dataset.as_ref().filter(|demo| demo.file == file),
            _ => None,
        });
        let numbers = demos.filter_map(|demo| format.demo_number(&demo.demo));
        numbers.max().map_or(0, |last| last + 1)
    }
}

/// Returns the demonstrations of a dataset that journal lines name.
pub fn demos_in(lines: &[&Line], file: &str) -> BTreeSet<String> {
    let demos = lines.iter().filter_map(|line| match line {
        Line::Episode(episode) => episode.dataset.as_ref().filter(|demo| demo.file == file),
        _ => None,
    });
    demos.map(|demo| demo.demo.clone()).collect()
}

/// Returns the number of the episode that a line is about.
fn episode_of(line: &Line) -> Option<u64> {
    if let Line::Episode(episode) = line {
        Some(episode.episode)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::journal::JobStart;
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
        let suspects = Suspects::default();
        let found = |lines: Vec<&Line>, version: &str| {
            let earlier = Earlier {
                done: Vec::new(),
                solved: 0,
                lines,
                suspects: &suspects,
                attempt: 0,
            };
            earlier.other_versions(&settings(version))
        };
        assert!(found(vec![&start], "2.2").is_empty());
        assert!(found(vec![&start, &episode], "2.1").is_empty());
        let expected = ["env_versions.numpy 2.1 → 2.2"];
        assert_eq!(found(vec![&start, &episode], "2.2"), expected);
    }
}
