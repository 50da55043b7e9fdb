//! What journals say is done: the part of a run that is not run again.

use std::collections::BTreeMap;

use crate::file::rollout::MAX_EPISODES;
use crate::job::{Job, JobIndex, Length};
use crate::journal::{JobEnd, Line};
use crate::placement::Share;
use crate::report::standing::{has_ended, standing};

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

/// Of the episodes of a job that are done, those that were solved, by the line that counts: the first one scored.
pub fn solved<'a>(lines: impl IntoIterator<Item = &'a Line>, job: JobIndex) -> u64 {
    let mut first: BTreeMap<u64, (&str, bool)> = BTreeMap::new();
    for line in lines {
        if let Line::Episode(episode) = line
            && episode.job_index == job
            && episode.error.is_none()
        {
            let this = (episode.ended.as_str(), episode.success == Some(true));
            let kept = first.entry(episode.episode).or_insert(this);
            if this.0 < kept.0 {
                *kept = this;
            }
        }
    }
    first.values().filter(|(_, solved)| *solved).count() as u64
}

/// Whether a rank's part of a job has run to its end before, so that there is nothing left to do. `share` is the rank's,
/// `None` for the whole job.
///
/// A job of a number of episodes is finished when they are all there without an error, whoever ran them and however the
/// attempts at it ended. One of another length also has to have come to an end that was none by an error.
pub fn finished<'a>(lines: impl IntoIterator<Item = &'a Line>, job: &Job, share: Option<Share>) -> bool {
    let is_ours = |episode: u64| share.is_none_or(|share| share.slot(episode).is_some());
    let mut episodes: BTreeMap<u64, bool> = BTreeMap::new();
    let (mut ends, mut said) = (Vec::new(), None);
    for line in lines {
        match line {
            Line::Episode(episode) if episode.job_index == job.index && is_ours(episode.episode) => {
                *episodes.entry(episode.episode).or_default() |= episode.error.is_none();
            }
            Line::JobEnd(end) if end.job_index == job.index => ends.push(end),
            Line::JobStart(start) if start.job_index == job.index => {
                // The journal may be somebody else's: no job of ours has more.
                let this = start.episodes.map(|count| (start.started.as_str(), count.min(MAX_EPISODES)));
                said = said.max(this);
            }
            _ => {}
        }
    }
    let scored = episodes.values().filter(|scored| **scored).count() as u64;
    let all = |count: u64| match share {
        Some(_) => scored >= (0..count).filter(|episode| is_ours(*episode)).count() as u64,
        None => scored >= count,
    };
    ends.sort_by(|a, b| a.ended.cmp(&b.ended));
    let standing = standing(ends.into_iter());
    let touches = |end: &JobEnd| match (end.share, share) {
        (Some(theirs), Some(ours)) => {
            let (theirs, ours) = (theirs.envs(), ours.envs());
            theirs.start.max(ours.start) < theirs.end.min(ours.end)
        }
        _ => true,
    };
    let ended = || {
        let failed = standing.iter().any(|end| end.error.is_some() && touches(end));
        scored == episodes.len() as u64 && has_ended(&standing, job, share) && !failed
    };
    match job.length {
        Length::Episodes(count) => all(count),
        Length::Steps(_) => ended(),
        Length::Policy => said.is_some_and(|(_, count)| all(count)) && ended(),
    }
}
