//! Journal lines in groups, and which of them count.

use std::collections::{BTreeMap, BTreeSet};

use crate::episode::Episode;
use crate::job::{Job, JobIndex, Length, Status};
use crate::journal::{EnvLost, JobEnd, JobStart, Line, RankEnd, RankStart};
use crate::placement::Share;

/// Journal lines in groups.
#[derive(Default)]
pub(super) struct Merged<'a> {
    pub(super) episodes: BTreeMap<(JobIndex, u64), Vec<&'a Episode>>,
    pub(super) job_starts: BTreeMap<JobIndex, Vec<&'a JobStart>>,
    pub(super) job_ends: BTreeMap<JobIndex, Vec<&'a JobEnd>>,
    pub(super) env_losses: BTreeMap<JobIndex, Vec<&'a EnvLost>>,
    pub(super) rank_starts: BTreeMap<usize, Vec<&'a RankStart>>,
    pub(super) rank_ends: BTreeMap<usize, Vec<&'a RankEnd>>,
}

impl<'a> Merged<'a> {
    pub(super) fn new(lines: impl IntoIterator<Item = &'a Line>) -> Self {
        let mut merged = Self::default();
        for line in lines {
            match line {
                Line::Rank(line) => add(&mut merged.rank_starts, line.rank, line),
                Line::RankEnd(line) => add(&mut merged.rank_ends, line.rank, line),
                Line::JobStart(line) => add(&mut merged.job_starts, line.job_index, line),
                Line::EnvLost(line) => add(&mut merged.env_losses, line.job_index, &**line),
                Line::JobEnd(line) => add(&mut merged.job_ends, line.job_index, line),
                Line::EpisodeStart(_) | Line::PolicyFiles(_) => {}
                Line::Episode(line) => add(&mut merged.episodes, (line.job_index, line.episode), &**line),
            }
        }
        merged.in_time();
        merged
    }

    /// Journals come rank by rank, and a job may have moved to another rank: what is last goes by the clock. Moments
    /// of [`crate::time::rfc3339`] sort as texts.
    fn in_time(&mut self) {
        self.episodes.values_mut().for_each(|lines| lines.sort_by(|a, b| a.ended.cmp(&b.ended)));
        self.job_starts.values_mut().for_each(|lines| lines.sort_by(|a, b| a.started.cmp(&b.started)));
        self.job_ends.values_mut().for_each(|lines| lines.sort_by(|a, b| a.ended.cmp(&b.ended)));
        self.env_losses.values_mut().for_each(|lines| lines.sort_by(|a, b| a.at.cmp(&b.at)));
        self.rank_starts.values_mut().for_each(|lines| lines.sort_by(|a, b| a.started.cmp(&b.started)));
    }

    /// The line that counts: the first that was scored, else the last error.
    pub(super) fn counted(&self, job: JobIndex) -> Vec<&'a Episode> {
        let range = (job, 0)..=(job, u64::MAX);
        let pick = |lines: &Vec<&'a Episode>| lines.iter().find(|line| line.error.is_none()).or(lines.last()).copied();
        self.episodes.range(range).filter_map(|(_, lines)| pick(lines)).collect()
    }

    /// Ends that say how a job stands, the latest first: of several ranks that share it, the last one of each; an end is
    /// of the past when all its environments have a later one.
    pub(super) fn standing(&self, job: JobIndex) -> Vec<&'a JobEnd> {
        let (mut standing, mut covered) = (Vec::new(), BTreeSet::new());
        for end in self.job_ends.get(&job).into_iter().flatten().rev() {
            let Some(share) = end.share else {
                // All environments: what was before it does not stand any more.
                if standing.is_empty() {
                    standing.push(*end);
                }
                break;
            };
            if share.envs().any(|env| !covered.contains(&env)) {
                standing.push(*end);
                covered.extend(share.envs());
            }
        }
        standing
    }

    /// Whether every environment in `share` (`None`: every one of the job) has come to an end.
    pub(super) fn has_ended(&self, job: &Job, share: Option<Share>) -> bool {
        let standing = self.standing(job.index);
        let total = job.sharing.map_or(1, |sharing| sharing.total_num_envs);
        let mut envs = share.map_or(0..total, |share| share.envs());
        let covers = |end: &JobEnd, env: usize| end.share.is_none_or(|share| share.envs().contains(&env));
        envs.all(|env| standing.iter().any(|end| covers(end, env)))
    }

    pub(super) fn expected(&self, job: &Job) -> Option<u64> {
        let said = self.job_starts.get(&job.index).and_then(|starts| starts.iter().rev().find_map(|s| s.episodes));
        match (job.status, job.length) {
            (Status::Pending, Length::Episodes(count)) => Some(job.selected(count)),
            (Status::Pending, Length::Steps(_)) => Some(self.counted(job.index).len() as u64),
            (Status::Pending, Length::Policy) => said,
            _ => Some(0),
        }
    }
}

/// A line that is there already (a journal and its copy from the gather) is the same event.
fn add<'a, K: Ord, T: PartialEq>(groups: &mut BTreeMap<K, Vec<&'a T>>, key: K, line: &'a T) {
    let group = groups.entry(key).or_default();
    if !group.contains(&line) {
        group.push(line);
    }
}
