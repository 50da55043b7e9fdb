//! What journals say is done: the part of a run that is not run again.

use std::collections::BTreeMap;

use crate::job::{Job, JobIndex, Length};
use crate::journal::{JobEnd, Line};
use crate::placement::Share;
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
        Line::Rank(_) | Line::RankEnd(_) | Line::PolicyFiles(_) => None,
        Line::JobStart(start) => Some(start.job_index),
        Line::EpisodeStart(start) => Some(start.job_index),
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

/// Whether a rank's part of a job has run to its end before, so that there is nothing left to do: no last attempt at it
/// failed, and every episode of it is there without an error. `share` is the rank's, `None` for the whole job.
pub fn finished<'a>(lines: impl IntoIterator<Item = &'a Line>, job: &Job, share: Option<Share>) -> bool {
    let merged = Merged::new(lines);
    let is_ours = |episode: u64| share.is_none_or(|share| share.slot(episode).is_some());
    let episodes: Vec<_> = merged.counted(job.index).into_iter().filter(|episode| is_ours(episode.episode)).collect();
    let scored = episodes.iter().filter(|episode| episode.error.is_none()).count();
    let touches = |end: &JobEnd| match (end.share, share) {
        (Some(theirs), Some(ours)) => theirs.envs().any(|env| ours.envs().contains(&env)),
        _ => true,
    };
    let failed = merged.standing(job.index).into_iter().any(|end| end.error.is_some() && touches(end));
    let expected = |count: u64| match share {
        Some(_) => (0..count).filter(|episode| is_ours(*episode)).count(),
        None => usize::try_from(count).unwrap_or(usize::MAX),
    };
    let all = match job.length {
        Length::Steps(_) => true,
        _ => merged.expected(job).is_some_and(|count| scored >= expected(count)),
    };
    let ended = matches!(job.length, Length::Episodes(_)) || merged.has_ended(job, share);
    scored == episodes.len() && all && ended && !failed
}
