//! Counts episodes and computes their rates: of a job, of a policy, and of jobs with a property in
//! common.
//!
//! A policy is a type, and a path if jobs of that type have several. A rate over several policies
//! describes none of them, so each has its own.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

use jobs::job::Job;
use jobs::tree;

use crate::OrderedSet;
use crate::merged::Merged;
use crate::merged::record::EpisodeRecord;
use crate::schema::{GroupReport, PolicyRates, Rates, Report};
use crate::stats::{Solved, mean};

/// The episodes of a job that count.
pub(crate) struct JobEpisodes<'a> {
    pub(crate) job: &'a Job,
    /// Number of its policy.
    policy: usize,
    /// Whether the job is under control: no variant of another one.
    pub(crate) is_control: bool,
    /// Number of expected episodes, if it is known.
    expected: Option<u64>,
    pub(crate) records: &'a [EpisodeRecord],
    /// Added up once, because a job counts in many groups.
    sums: Sums,
}

/// Sums over episodes.
#[derive(Clone, Copy, Default)]
struct Sums {
    episodes: u64,
    scored: u64,
    successes: u64,
    /// Number of episodes that report whether they were solved after their last step.
    told_at_end: u64,
    solved_at_end: u64,
    returns: f64,
    /// Number of scored episodes with a largest reward.
    rewarded: u64,
    max_rewards: f64,
    lengths: u64,
    out_of_bounds: u64,
}

impl Sums {
    fn of_episode(record: &EpisodeRecord) -> Self {
        let sums = Self {
            episodes: 1,
            out_of_bounds: u64::from(record.out_of_bounds),
            ..Self::default()
        };
        let Some(scored) = record.outcome else {
            return sums;
        };
        Self {
            scored: 1,
            successes: u64::from(scored.solved),
            told_at_end: u64::from(scored.solved_at_end.is_some()),
            solved_at_end: u64::from(scored.solved_at_end == Some(true)),
            returns: record.return_,
            rewarded: u64::from(record.max_reward.is_some()),
            max_rewards: record.max_reward.map_or(0.0, f64::from),
            lengths: u64::from(record.length),
            ..sums
        }
    }
}

impl Add for Sums {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            episodes: self.episodes + other.episodes,
            scored: self.scored + other.scored,
            successes: self.successes + other.successes,
            told_at_end: self.told_at_end + other.told_at_end,
            solved_at_end: self.solved_at_end + other.solved_at_end,
            returns: self.returns + other.returns,
            rewarded: self.rewarded + other.rewarded,
            max_rewards: self.max_rewards + other.max_rewards,
            lengths: self.lengths + other.lengths,
            out_of_bounds: self.out_of_bounds + other.out_of_bounds,
        }
    }
}

impl<'a> JobEpisodes<'a> {
    /// Returns those of all jobs of a plan, in its order.
    pub(crate) fn of(merged: &'a Merged, policies: &Policies) -> Vec<Self> {
        let variants = merged.variant_jobs();
        let variants: BTreeSet<_> = variants.iter().map(|variant| variant.job.index).collect();
        let of_job = |(job, policy): (&'a Job, &usize)| {
            let records = merged.episodes(job.index);
            let sums = records.iter().map(Sums::of_episode);
            Self {
                job,
                policy: *policy,
                is_control: !variants.contains(&job.index),
                expected: merged.expected(job),
                records,
                sums: sums.fold(Sums::default(), Sums::add),
            }
        };
        let jobs = merged.plan.jobs.iter();
        jobs.zip(&policies.of_jobs).map(of_job).collect()
    }

    /// Returns the share of solved episodes; `None` without an episode.
    fn rate(&self) -> Option<f64> {
        Solved::new(self.sums.successes, self.sums.episodes).rate()
    }
}

/// Returns the unweighted mean of the rates of jobs.
pub(crate) fn mean_rate<'a>(jobs: impl IntoIterator<Item = &'a JobEpisodes<'a>>) -> Option<f64> {
    mean(jobs.into_iter().filter_map(JobEpisodes::rate))
}

impl Rates {
    /// Returns the counts and rates of all episodes of these jobs together.
    pub(crate) fn of<'a>(jobs: impl IntoIterator<Item = &'a JobEpisodes<'a>>) -> Self {
        let (mut expected, mut policies) = (Some(0), BTreeSet::new());
        let mut sums = Sums::default();
        for job in jobs {
            expected = expected.zip(job.expected).map(|(a, b)| a + b);
            policies.extend(job.records.first().map(|_| job.policy));
            sums = sums + job.sums;
        }
        let share = |part: f64, of: u64| (of > 0).then(|| part / of as f64);
        let [all, completed] =
            [sums.episodes, sums.scored].map(|of| Solved::new(sums.successes, of));
        Self {
            expected,
            policies: policies.len() as u64,
            episodes: sums.episodes,
            scored: sums.scored,
            successes: sums.successes,
            errors: sums.episodes - sums.scored,
            success_rate: all.rate(),
            wilson95: all.wilson95(),
            completion_only_rate: completed.rate(),
            completion_only_wilson95: completed.wilson95(),
            success_at_end: share(sums.solved_at_end as f64, sums.told_at_end),
            mean_return: share(sums.returns, sums.scored),
            actions_out_of_bounds: sums.out_of_bounds,
            mean_max_reward: share(sums.max_rewards, sums.rewarded),
            mean_length: share(sums.lengths as f64, sums.scored),
        }
    }

    /// Returns the metrics under Arena's names: rates only if there are episodes, and those about
    /// errors only if there are errors.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        let mut metrics = Vec::from_iter(self.success_rate.map(|rate| ("success_rate", rate)));
        metrics.push(("num_episodes", self.episodes as f64));
        if self.errors > 0 {
            metrics.push(("num_errors", self.errors as f64));
            let only = self.completion_only_rate.unwrap_or(0.0);
            metrics.push(("completion_only_rate", only));
        }
        metrics
    }

    /// Returns the number of expected episodes that were not found.
    pub(crate) fn missing(&self) -> u64 {
        let expected = self.expected.unwrap_or_default();
        expected.saturating_sub(self.episodes)
    }

    /// Returns how many of the episodes without an error were solved; `None` if they are all of the
    /// episodes, or if there is none.
    pub(crate) fn without_errors(&self) -> Option<Solved> {
        (self.errors > 0 && self.scored > 0).then_some(Solved::new(self.successes, self.scored))
    }
}

/// Assigns the jobs of a plan to policies.
pub(crate) struct Policies<'a> {
    /// Type and path of each policy, in the order of the jobs file.
    policies: OrderedSet<(&'a str, Option<&'a str>)>,
    /// For each job of the plan, the index of its policy in that list.
    pub(crate) of_jobs: Vec<usize>,
}

impl<'a> Policies<'a> {
    pub(crate) fn of(merged: &'a Merged) -> Self {
        // The path is the one that the rank reported; a job that has not begun has none.
        let key = |job: &'a Job| {
            let settings = merged.settings_of(job).last();
            let path = settings.and_then(|settings| settings.get("policy_path")?.as_str());
            (job.policy_type.as_str(), path)
        };
        let keys: Vec<_> = merged.plan.jobs.iter().map(key).collect();
        let mut paths: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (policy, path) in &keys {
            paths.entry(policy).or_default().extend(*path);
        }
        let mut policies = OrderedSet::default();
        let number = |(policy, path): (&'a str, Option<&'a str>)| {
            let path = path.or_else(|| only(&paths[policy]));
            policies.insert_full((policy, path)).0
        };
        Self {
            of_jobs: keys.into_iter().map(number).collect(),
            policies,
        }
    }

    /// Returns type and path of a policy.
    pub(crate) fn named(&self, number: usize) -> (&'a str, Option<&'a str>) {
        self.policies[number]
    }

    /// Returns one entry for each policy, over its `jobs` under control.
    pub(crate) fn rates(&self, jobs: &[JobEpisodes]) -> Vec<PolicyRates> {
        let rates = |(number, (policy, path)): (usize, &(&str, Option<&str>))| {
            let is_own = |job: &&JobEpisodes| job.policy == number && job.is_control;
            let own: Vec<_> = jobs.iter().filter(is_own).collect();
            PolicyRates {
                policy_type: (*policy).to_owned(),
                path: path.map(str::to_owned),
                jobs: own.len() as u64,
                rated_jobs: own.iter().filter(|job| job.rate().is_some()).count() as u64,
                mean_task_success_rate: mean_rate(own.iter().copied()),
                rates: Rates::of(own),
            }
        };
        self.policies.iter().enumerate().map(rates).collect()
    }
}

impl Report {
    /// Returns the policies that have episodes.
    pub fn tried(&self) -> impl Iterator<Item = &PolicyRates> {
        self.per_policy
            .iter()
            .filter(|policy| policy.rates.episodes > 0)
    }

    /// Returns the display name of a policy: its type, followed by its path if several policies
    /// have that type.
    pub fn policy_name(&self, policy: &PolicyRates) -> String {
        let policies = self.per_policy.iter();
        let of_type = policies.filter(|other| other.policy_type == policy.policy_type);
        match &policy.path {
            Some(path) if of_type.count() > 1 => format!("{} {path}", policy.policy_type),
            _ => policy.policy_type.clone(),
        }
    }
}

/// Returns the only one of these names; `None` if there are several.
pub(crate) fn only<'a>(names: &BTreeSet<&'a str>) -> Option<&'a str> {
    names.first().copied().filter(|_| names.len() == 1)
}

/// Returns one entry for each value of each property.
pub(crate) fn groups(jobs: &[JobEpisodes]) -> Vec<GroupReport> {
    let mut groups: BTreeMap<_, Vec<&JobEpisodes>> = BTreeMap::new();
    for job in jobs {
        for property in properties(job.job) {
            groups.entry(property).or_default().push(job);
        }
    }
    let report = |((by, value), jobs): (_, Vec<&JobEpisodes>)| GroupReport {
        by,
        value,
        jobs: jobs.len() as u64,
        mean_task_success_rate: mean_rate(jobs.iter().copied()),
        rates: Rates::of(jobs),
    };
    groups.into_iter().map(report).collect()
}

/// Returns the properties of a job as pairs of name and value.
pub(crate) fn properties(job: &Job) -> Vec<(String, String)> {
    let mut properties = vec![
        ("policy".to_owned(), job.policy_type.clone()),
        ("task".to_owned(), job.environment.clone()),
    ];
    // `eval_set` is EmbodiedBench's name for a set of tasks.
    let set = job.env_args.get("eval_set");
    properties.extend(set.map(|set| ("eval_set".to_owned(), tree::plain(set))));
    let variations = tree::flat(&job.variations).into_iter();
    let named = |(path, value)| (format!("variations.{path}"), tree::plain(&value));
    properties.extend(variations.map(named));
    properties
}
