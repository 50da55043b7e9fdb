//! Determines which work the journals show as done, which a resumed run skips.

use std::collections::BTreeMap;

use crate::file::rollout::MAX_EPISODES;
use crate::job::{Job, JobIndex, Length};
use crate::journal::{JobEnd, Line};
use crate::placement::Share;
use crate::report::standing::{has_ended, standing};

/// Returns the finished episodes by job, which a resumed run skips. An errored episode is run
/// again.
pub fn done<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<JobIndex, Vec<u64>> {
    let mut done: BTreeMap<JobIndex, Vec<u64>> = BTreeMap::new();
    for line in lines {
        if let Line::Episode(episode) = line
            && episode.error.is_none()
        {
            done.entry(episode.job_index)
                .or_default()
                .push(episode.episode);
        }
    }
    for episodes in done.values_mut() {
        episodes.sort_unstable();
        episodes.dedup();
    }
    done
}

/// Returns how many finished episodes of a job were solved. Of several lines about an episode the
/// first scored one counts.
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

/// Returns whether a rank's part of a job has already run to its end, so that nothing is left to
/// do. `share` is the share of the rank, or `None` for the whole job.
///
/// A job with a number of episodes is finished if all of them are there without an error, no matter
/// which ranks ran them and how its attempts ended. A job of another length must also have ended
/// without an error.
pub fn finished<'a>(
    lines: impl IntoIterator<Item = &'a Line>,
    job: &Job,
    share: Option<Share>,
) -> bool {
    let is_ours = |episode: u64| share.is_none_or(|share| share.slot(episode).is_some());
    let mut episodes: BTreeMap<u64, bool> = BTreeMap::new();
    let (mut ends, mut said) = (Vec::new(), None);
    for line in lines {
        match line {
            Line::Episode(episode)
                if episode.job_index == job.index && is_ours(episode.episode) =>
            {
                *episodes.entry(episode.episode).or_default() |= episode.error.is_none();
            }
            Line::JobEnd(end) if end.job_index == job.index => ends.push(end),
            Line::JobStart(start) if start.job_index == job.index => {
                // The journal may come from another user; a job has at most this many episodes.
                let this = start
                    .episodes
                    .map(|count| (start.started.as_str(), count.min(MAX_EPISODES)));
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
        let failed = standing
            .iter()
            .any(|end| end.error.is_some() && touches(end));
        scored == episodes.len() as u64 && has_ended(&standing, job, share) && !failed
    };
    match job.length {
        Length::Episodes(count) => all(count),
        Length::Steps(_) => ended(),
        Length::Policy => said.is_some_and(|(_, count)| all(count)) && ended(),
    }
}
