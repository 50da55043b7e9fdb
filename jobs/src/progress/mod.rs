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
use crate::format::word;
use crate::job::{Job, JobIndex, Length, Status};
use crate::journal::{JobEnd, Line};
use crate::placement::Share;

/// What journal lines say about one job. Of several lines about an episode the first scored one
/// counts.
#[derive(Clone, Debug, Default)]
pub struct Progress<'a> {
    /// When each episode ended, and whether it was solved; `None` if it ended with errors only.
    episodes: BTreeMap<u64, Option<(&'a str, bool)>>,
    ends: Vec<&'a JobEnd>,
    /// When the job began last, and how many episodes it had then.
    begun: Option<(&'a str, u64)>,
}

/// Returns what lines say about each job that they are about.
pub fn by_job<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<JobIndex, Progress<'a>> {
    let mut jobs: BTreeMap<_, Progress<'_>> = BTreeMap::new();
    for line in lines {
        if let Some((_, job)) = line.job() {
            jobs.entry(job).or_default().add(line);
        }
    }
    jobs
}

impl<'a> Progress<'a> {
    /// Returns what lines say about a job.
    pub fn of(job: JobIndex, lines: impl IntoIterator<Item = &'a Line>) -> Self {
        by_job(lines).remove(&job).unwrap_or_default()
    }

    fn add(&mut self, line: &'a Line) {
        match line {
            Line::Episode(episode) => {
                let first = self.episodes.entry(episode.episode).or_default();
                let this = (episode.ended.as_str(), episode.success == Some(true));
                if episode.is_scored() && first.is_none_or(|first| this.0 < first.0) {
                    *first = Some(this);
                }
            }
            Line::JobEnd(end) => self.ends.push(end),
            Line::JobStart(start) => {
                // The journal may come from another user; a job has at most this many episodes.
                let count = start.episodes.map(|count| count.min(MAX_EPISODES));
                self.begun = self.begun.max(count.map(|count| (&*start.started, count)));
            }
            _ => {}
        }
    }

    /// Returns the finished episodes, ascending, which a resumed run skips. An errored episode is
    /// run again.
    pub fn done(&self) -> impl Iterator<Item = u64> {
        let scored = self.episodes.iter().filter(|(_, scored)| scored.is_some());
        scored.map(|(episode, _)| *episode)
    }

    /// Returns whether an episode is finished.
    pub fn has(&self, episode: u64) -> bool {
        self.episodes.get(&episode).is_some_and(Option::is_some)
    }

    /// Returns whether an episode was solved.
    pub fn is_solved(&self, episode: u64) -> bool {
        let scored = self.episodes.get(&episode).copied().flatten();
        scored.is_some_and(|(_, is_solved)| is_solved)
    }

    /// Returns whether a rank's part of the job has already run to its end, so that nothing is left
    /// to do. `share` is the share of the rank, or `None` for the whole job.
    ///
    /// A job with a number of episodes is finished if all of them are there without an error, no
    /// matter which ranks ran them and how its attempts ended. A job of another length must also
    /// have ended without an error.
    pub fn is_finished(&self, job: &Job, share: Option<Share>) -> bool {
        let is_ours = |episode: &u64| {
            job.selects(*episode) && share.is_none_or(|share| share.slot(*episode).is_some())
        };
        let all = |count: u64| {
            let selection = job.selection(count);
            selection
                .iter()
                .filter(is_ours)
                .all(|episode| self.has(episode))
        };
        let ended = || {
            let mut ends = self.ends.clone();
            ends.sort_by(|a, b| a.ended.cmp(&b.ended));
            let standing = standing(ends.into_iter());
            let touches = |end: &JobEnd| match (end.share, share) {
                (Some(theirs), Some(ours)) => {
                    let (theirs, ours) = (theirs.envs(), ours.envs());
                    theirs.start.max(ours.start) < theirs.end.min(ours.end)
                }
                _ => true,
            };
            let mut episodes = self.episodes.keys().filter(|episode| is_ours(episode));
            episodes.all(|episode| self.has(*episode))
                && has_ended(&standing, job, share)
                && !standing
                    .iter()
                    .any(|end| end.error.is_some() && touches(end))
        };
        match job.length {
            Length::Episodes(count) => all(count),
            Length::Steps(_) => ended(),
            Length::Policy => self.begun.is_some_and(|(_, count)| all(count)) && ended(),
        }
    }

    /// Returns the status of the job before a launch, and how many of its episodes are done if some
    /// are: `completed, 4 done`.
    pub fn status(&self, job: &Job) -> String {
        if job.status != Status::Pending {
            return word(job.status);
        }
        let is_finished = self.is_finished(job, None);
        let status = match is_finished {
            true => word(Status::Completed),
            false => word(job.status),
        };
        // An interrupted job in steps starts over, so that nothing of it is done.
        let starts_over = !is_finished && matches!(job.length, Length::Steps(_));
        match self.done().filter(|episode| job.selects(*episode)).count() {
            done @ 1.. if !starts_over => format!("{status}, {done} done"),
            _ => status,
        }
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
    let progress = by_job(lines);
    let mut pending = jobs.iter().filter(|job| job.status == Status::Pending);
    let is_done =
        |job: &Job| (progress.get(&job.index)).is_some_and(|it| it.is_finished(job, None));
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
struct Suspect {
    job_index: JobIndex,
    /// Number of the episode within the job.
    episode: u64,
    /// Number of deaths while it was running.
    deaths: u32,
    /// Number of those while it ran alone.
    deaths_alone: u32,
}

/// The deaths that each episode is suspected of, by job and episode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Suspect>", into = "Vec<Suspect>")]
pub struct Suspects(BTreeMap<(JobIndex, u64), Suspect>);

impl From<Vec<Suspect>> for Suspects {
    fn from(list: Vec<Suspect>) -> Self {
        let keyed = list
            .into_iter()
            .map(|one| ((one.job_index, one.episode), one));
        Self(keyed.collect())
    }
}

impl From<Suspects> for Vec<Suspect> {
    fn from(suspects: Suspects) -> Self {
        suspects.0.into_values().collect()
    }
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
        for other in others.0.values() {
            let known = self.suspect(other.job_index, other.episode);
            known.deaths = known.deaths.saturating_add(other.deaths);
            known.deaths_alone = known.deaths_alone.saturating_add(other.deaths_alone);
        }
    }

    /// Returns how an episode is to be run.
    pub fn standing(&self, job: JobIndex, episode: u64) -> Treatment {
        match self.0.get(&(job, episode)) {
            None => Treatment::Usual,
            Some(one) if one.deaths >= DEATHS || one.deaths_alone >= DEATHS_ALONE => {
                Treatment::GivenUp(one.deaths)
            }
            Some(_) => Treatment::Alone,
        }
    }

    /// Returns the episodes of a job that are not to be run as usual.
    pub fn of(&self, job: JobIndex) -> BTreeSet<u64> {
        let suspects = self.0.range((job, 0)..=(job, u64::MAX));
        suspects.map(|((_, episode), _)| *episode).collect()
    }

    /// Returns the suspect that an episode is, without deaths if it was none so far.
    fn suspect(&mut self, job_index: JobIndex, episode: u64) -> &mut Suspect {
        let none = Suspect {
            job_index,
            episode,
            ..Suspect::default()
        };
        self.0.entry((job_index, episode)).or_insert(none)
    }
}

#[cfg(test)]
mod tests;
