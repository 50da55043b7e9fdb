//! What journals say is done: the part of a run that is not run again.

use std::collections::BTreeMap;

use crate::job::{Job, JobIndex, Length};
use crate::journal::Line;
use crate::report::merged::Merged;

/// Episodes that are done, by job: what a resumed run leaves out. An errored one is done again.
pub fn done<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<JobIndex, Vec<u64>> {
    let mut done: BTreeMap<JobIndex, Vec<u64>> = BTreeMap::new();
    for line in lines {
        if let Line::Episode(episode) = line
            && episode.error.is_none()
        {
            done.entry(episode.job_index).or_default().push(episode.episode);
        }
    }
    for episodes in done.values_mut() {
        episodes.sort_unstable();
        episodes.dedup();
    }
    done
}

/// The lines about one job.
pub fn about(lines: &[Line], job: JobIndex) -> Vec<&Line> {
    let of = |line: &Line| match line {
        Line::Rank(_) | Line::RankEnd(_) => None,
        Line::JobStart(start) => Some(start.job_index),
        Line::Episode(episode) => Some(episode.job_index),
        Line::EnvLost(lost) => Some(lost.job_index),
        Line::JobEnd(end) => Some(end.job_index),
    };
    lines.iter().filter(|line| of(line) == Some(job)).collect()
}

/// Of the episodes of a job that are done, those that were solved.
pub fn solved<'a>(lines: impl IntoIterator<Item = &'a Line>, job: JobIndex) -> u64 {
    Merged::new(lines).counted(job).iter().filter(|episode| episode.success == Some(true)).count() as u64
}

/// Whether a job has run to its end before, so that there is nothing left to do: its last attempt did not fail, and
/// every episode is there without an error.
pub fn finished<'a>(lines: impl IntoIterator<Item = &'a Line>, job: &Job) -> bool {
    let merged = Merged::new(lines);
    let last = merged.job_ends.get(&job.index).and_then(|ends| ends.last());
    let episodes = merged.counted(job.index);
    let scored = episodes.iter().filter(|episode| episode.error.is_none()).count() as u64;
    let all = scored == episodes.len() as u64 && merged.expected(job).is_some_and(|expected| scored >= expected);
    match job.length {
        Length::Episodes(_) => all && last.is_none_or(|end| end.error.is_none()),
        Length::Steps(_) | Length::Policy => all && last.is_some_and(|end| end.error.is_none()),
    }
}
