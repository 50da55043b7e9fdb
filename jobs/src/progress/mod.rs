//! Determines from journal lines which work is done, which a resumed run skips, which ends of a job
//! are current, and which episodes may have killed a rank: those that were running when it died.
//!
//! ```text
//! deaths while it was running     0 ─► as usual
//!                                 1 ─► alone, so that the next death names the culprit
//!                        2 alone, 3 ─► an error, so that the rank can continue with the rest
//! ```
//! If a rank reports that its hardware failed, no episode is to blame.
//!
//! Only deaths within the current launch count, because the launcher saw them and restarted the
//! rank. A power failure, or a user who kills everything, says nothing about an episode.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::file::MAX_EPISODES;
use crate::job::{Job, JobIndex, Length, Status};
use crate::journal::{JobEnd, Line};
use crate::placement::Share;

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
    let is_ours = |episode: u64| {
        job.selects(episode) && share.is_none_or(|share| share.slot(episode).is_some())
    };
    let mut episodes: BTreeMap<u64, bool> = BTreeMap::new();
    let (mut ends, mut said) = (Vec::new(), None);
    for line in lines {
        match line {
            Line::Episode(episode)
                if episode.job_index == job.index && is_ours(episode.episode) =>
            {
                *episodes.entry(episode.episode).or_default() |= episode.error.is_none();
            }
            Line::JobEnd(end) if end.job_index == job.index => ends.push(&**end),
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
    let all = |count: u64| {
        let selection = job.selection(count);
        let ours = selection.iter().filter(|episode| is_ours(*episode));
        scored >= ours.count() as u64
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

/// Returns the status of a job before a launch, and how many of its episodes are done if some are:
/// `completed, 4 done`. `lines` are the lines about the job.
pub fn status_so_far(lines: &[&Line], job: &Job) -> String {
    if job.status != Status::Pending {
        return job.status.as_str().to_owned();
    }
    let done = done(lines.iter().copied())
        .remove(&job.index)
        .unwrap_or_default();
    let done = done.into_iter().filter(|episode| job.selects(*episode));
    let done = done.count() as u64;
    let is_finished = match job.length {
        Length::Episodes(count) => done >= job.selected(count),
        Length::Steps(_) | Length::Policy => finished(lines.iter().copied(), job, None),
    };
    let status = match is_finished {
        true => Status::Completed,
        false => job.status,
    };
    // An interrupted job in steps starts over, so that nothing of it is done.
    let starts_over = !is_finished && matches!(job.length, Length::Steps(_));
    match done {
        1.. if !starts_over => format!("{}, {done} done", status.as_str()),
        _ => status.as_str().to_owned(),
    }
}

/// Returns when the last episode ended, if a launch that began at the UTC time `launched` has found
/// every job done that is to run.
pub fn done_before(lines: &[Line], jobs: &[Job], launched: &str) -> Option<String> {
    let has_begun = |line: &Line| match line {
        Line::JobStart(start) => start.started.as_str() >= launched,
        _ => false,
    };
    if lines.iter().any(has_begun) {
        return None;
    }
    let mut about: BTreeMap<JobIndex, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        if let Some((_, job)) = line.job() {
            about.entry(job).or_default().push(line);
        }
    }
    let mut pending = jobs.iter().filter(|job| job.status == Status::Pending);
    let is_done = |job: &Job| {
        let about = about.get(&job.index).map_or(&[][..], Vec::as_slice);
        status_so_far(about, job).starts_with(Status::Completed.as_str())
    };
    if !pending.all(is_done) {
        return None;
    }
    let ended = |line: &Line| match line {
        Line::Episode(episode) => Some(episode.ended.clone()),
        _ => None,
    };
    lines.iter().filter_map(ended).max()
}

/// Returns the ends that determine the status of a job, the latest first; `ends` must be in order
/// of time. If several ranks share the job, the last end of each counts. An end is outdated if all
/// its environments have a later one.
pub fn standing<'a>(ends: impl DoubleEndedIterator<Item = &'a JobEnd>) -> Vec<&'a JobEnd> {
    let (mut standing, mut covered) = (Vec::new(), Vec::new());
    for end in ends.rev() {
        let Some(share) = end.share else {
            // This end is about all environments, so earlier ends are outdated.
            if standing.is_empty() {
                standing.push(end);
            }
            break;
        };
        if !is_covered(share.envs(), &covered) {
            standing.push(end);
            covered.push(share.envs());
        }
    }
    standing
}

/// Returns whether every environment in `share` has ended; `None` stands for all environments of
/// the job.
pub fn has_ended(standing: &[&JobEnd], job: &Job, share: Option<Share>) -> bool {
    let total = job.total_num_envs.unwrap_or(1);
    let envs = share.map_or(0..total, |share| share.envs());
    let ended: Vec<_> = standing
        .iter()
        .map(|end| end.share.map_or(0..usize::MAX, |share| share.envs()))
        .collect();
    is_covered(envs, &ended)
}

/// Returns whether all of `envs` are covered by other ranges. It does not iterate over
/// environments: a journal from another user may have shares of any size in each line.
fn is_covered(envs: Range<usize>, by: &[Range<usize>]) -> bool {
    let mut left = vec![envs];
    left.retain(|part| !part.is_empty());
    for other in by {
        if left.is_empty() {
            break;
        }
        let without = |part: Range<usize>| {
            let before = part.start..part.end.min(other.start);
            let behind = part.start.max(other.end)..part.end;
            [before, behind].into_iter().filter(|part| !part.is_empty())
        };
        left = left.into_iter().flat_map(without).collect();
    }
    left.is_empty()
}

/// Number of deaths after which an episode is given up.
const DEATHS: u32 = 3;

/// Number of deaths while the episode ran alone after which it is given up.
const DEATHS_ALONE: u32 = 2;

/// How an episode is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Together with other episodes.
    Usual,
    /// With no other episode running.
    Alone,
    /// Not again, after this many deaths.
    GivenUp(u32),
}

/// An episode that may have killed its rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// Job of the episode.
    pub job_index: JobIndex,
    /// Number of the episode within the job.
    pub episode: u64,
    /// Number of deaths while it was running.
    pub deaths: u32,
    /// Number of those while it ran alone.
    pub deaths_alone: u32,
}

/// The deaths that each episode is suspected of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects {
    suspects: BTreeMap<(JobIndex, u64), Suspect>,
}

impl Suspects {
    /// Adds the lines of one journal, in their order.
    pub fn add<'a>(&mut self, journal: impl IntoIterator<Item = &'a Line>) {
        let mut launch = Suspects::default();
        let mut under_way: BTreeMap<(JobIndex, u64), bool> = BTreeMap::new();
        let mut has_ended = true;
        for line in journal {
            match line {
                Line::Rank(start) => {
                    let before = std::mem::take(&mut under_way);
                    if start.restart == 0 {
                        launch = Suspects::default();
                    } else if !has_ended {
                        for ((job, episode), alone) in before {
                            let suspect = launch.suspect(job, episode);
                            suspect.deaths += 1;
                            suspect.deaths_alone += u32::from(alone);
                        }
                    }
                    has_ended = false;
                }
                Line::RankEnd(end) => has_ended = end.failure.is_none() || end.is_hardware,
                Line::EpisodeStart(start) => {
                    under_way.insert((start.job_index, start.episode), start.alone);
                }
                Line::Episode(episode) => {
                    under_way.remove(&(episode.job_index, episode.episode));
                }
                Line::EnvLost(lost) => {
                    under_way.remove(&(lost.job_index, lost.episode));
                }
                Line::JobEnd(end) => under_way.retain(|(job, _), _| *job != end.job_index),
                Line::JobStart(_) | Line::PolicyFiles(_) | Line::Decision(_) => {}
            }
        }
        self.include(&launch);
    }

    /// Adds the deaths of other journals.
    pub fn include(&mut self, others: &Self) {
        for other in others.suspects.values() {
            let known = self.suspect(other.job_index, other.episode);
            known.deaths = known.deaths.saturating_add(other.deaths);
            known.deaths_alone = known.deaths_alone.saturating_add(other.deaths_alone);
        }
    }

    /// Returns the episodes with their deaths, to send them to another rank.
    pub fn list(&self) -> Vec<Suspect> {
        self.suspects.values().copied().collect()
    }

    /// Reads what [`Suspects::list`] has returned.
    pub fn from_list(suspects: &[Suspect]) -> Self {
        let entry = |suspect: &Suspect| ((suspect.job_index, suspect.episode), *suspect);
        Self {
            suspects: suspects.iter().map(entry).collect(),
        }
    }

    /// Returns how an episode is to be run.
    pub fn standing(&self, job: JobIndex, episode: u64) -> Treatment {
        match self.suspects.get(&(job, episode)) {
            None => Treatment::Usual,
            Some(one) if one.deaths >= DEATHS || one.deaths_alone >= DEATHS_ALONE => {
                Treatment::GivenUp(one.deaths)
            }
            Some(_) => Treatment::Alone,
        }
    }

    /// Returns the episodes of a job that are not to be run as usual.
    pub fn of(&self, job: JobIndex) -> BTreeSet<u64> {
        self.suspects
            .keys()
            .filter(|(other, _)| *other == job)
            .map(|(_, episode)| *episode)
            .collect()
    }

    /// Returns the suspect that an episode is, without deaths if it was none so far.
    fn suspect(&mut self, job_index: JobIndex, episode: u64) -> &mut Suspect {
        let none = Suspect {
            job_index,
            episode,
            ..Suspect::default()
        };
        self.suspects.entry((job_index, episode)).or_insert(none)
    }
}

#[cfg(test)]
mod tests;
