//! Counts episodes and computes their rates: of a job, of a policy, and of jobs with a property in
//! common.
//!
//! A policy is a type, and a path if jobs of that type have several. A rate over several policies
//! describes none of them, so each has its own.

use std::collections::{BTreeMap, BTreeSet};

use jobs::job::Job;
use jobs::tree;

use crate::merged::Merged;
use crate::merged::record::EpisodeRecord;
use crate::schema::{GroupReport, PolicyRates, Rates, Report};
use crate::stats::{Solved, mean};

/// Sums over a set of episodes. Adding two tallies gives the tally of both sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EpisodeTally {
    /// Number of expected episodes; `None` if it is unknown for any part of the set.
    pub(crate) expected: Option<u64>,
    /// The policies of the episodes, by number.
    policies: BTreeSet<usize>,
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

impl EpisodeTally {
    /// Creates a tally without episodes.
    pub(crate) fn new(expected: Option<u64>) -> Self {
        Self {
            expected,
            ..Self::default()
        }
    }

    /// Tallies episodes of one policy.
    pub(crate) fn of(expected: Option<u64>, policy: usize, records: &[EpisodeRecord]) -> Self {
        let mut tally = Self::new(expected);
        tally.policies.extend(records.first().map(|_| policy));
        for record in records {
            tally.episodes += 1;
            tally.out_of_bounds += u64::from(record.out_of_bounds);
            let Some(scored) = record.outcome else {
                continue;
            };
            tally.scored += 1;
            tally.successes += u64::from(scored.solved);
            tally.told_at_end += u64::from(scored.solved_at_end.is_some());
            tally.solved_at_end += u64::from(scored.solved_at_end == Some(true));
            tally.returns += record.return_;
            tally.rewarded += u64::from(record.max_reward.is_some());
            tally.max_rewards += record.max_reward.map_or(0.0, f64::from);
            tally.lengths += u64::from(record.length);
        }
        tally
    }

    /// Adds another tally.
    fn add(&mut self, other: &Self) {
        self.expected = self.expected.zip(other.expected).map(|(a, b)| a + b);
        self.policies.extend(&other.policies);
        self.episodes += other.episodes;
        self.scored += other.scored;
        self.successes += other.successes;
        self.told_at_end += other.told_at_end;
        self.solved_at_end += other.solved_at_end;
        self.returns += other.returns;
        self.rewarded += other.rewarded;
        self.max_rewards += other.max_rewards;
        self.lengths += other.lengths;
        self.out_of_bounds += other.out_of_bounds;
    }

    /// Returns the share of solved episodes; `None` without an episode.
    pub(crate) fn rate(&self) -> Option<f64> {
        Solved::new(self.successes, self.episodes).rate()
    }

    /// Returns the rates of all of these sets together.
    pub(crate) fn sum<'a>(tallies: impl IntoIterator<Item = &'a Self>) -> Rates {
        let mut sum = Self::new(Some(0));
        tallies.into_iter().for_each(|tally| sum.add(tally));
        sum.rates()
    }

    pub(crate) fn rates(&self) -> Rates {
        let share = |part: f64, of: u64| (of > 0).then(|| part / of as f64);
        let successes = self.successes as f64;
        Rates {
            expected: self.expected,
            policies: self.policies.len() as u64,
            episodes: self.episodes,
            scored: self.scored,
            successes: self.successes,
            errors: self.episodes - self.scored,
            success_rate: share(successes, self.episodes),
            wilson95: Solved::new(self.successes, self.episodes).wilson95(),
            completion_only_rate: share(successes, self.scored),
            completion_only_wilson95: Solved::new(self.successes, self.scored).wilson95(),
            success_at_end: share(self.solved_at_end as f64, self.told_at_end),
            mean_return: share(self.returns, self.scored),
            actions_out_of_bounds: self.out_of_bounds,
            mean_max_reward: share(self.max_rewards, self.rewarded),
            mean_length: share(self.lengths as f64, self.scored),
        }
    }
}

impl Rates {
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
        self.expected
            .unwrap_or_default()
            .saturating_sub(self.episodes)
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
    policies: Vec<(&'a str, Option<&'a str>)>,
    /// For each job of the plan, the index of its policy in that list.
    pub(crate) of_jobs: Vec<usize>,
}

impl<'a> Policies<'a> {
    pub(crate) fn of(merged: &'a Merged) -> Self {
        // The path is the one that the rank reported; a job that has not begun has none.
        let keys: Vec<_> = merged
            .plan
            .jobs
            .iter()
            .map(|job| {
                let settings = merged.settings_of(job).last();
                let path = settings.and_then(|settings| settings.get("policy_path")?.as_str());
                (job.policy_type.as_str(), path)
            })
            .collect();
        let mut paths: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        keys.iter()
            .for_each(|(policy, path)| paths.entry(policy).or_default().extend(*path));
        let only = |policy: &str| {
            paths[policy]
                .first()
                .copied()
                .filter(|_| paths[policy].len() == 1)
        };
        let mut policies = Vec::new();
        let mut numbers = BTreeMap::new();
        let mut number = |(policy, path): (&'a str, Option<&'a str>)| {
            let key = (policy, path.or_else(|| only(policy)));
            *numbers.entry(key).or_insert_with(|| {
                policies.push(key);
                policies.len() - 1
            })
        };
        let of_jobs = keys.into_iter().map(&mut number).collect();
        Self { policies, of_jobs }
    }

    /// Returns type and path of a policy.
    pub(crate) fn named(&self, number: usize) -> (&'a str, Option<&'a str>) {
        self.policies[number]
    }

    /// Returns one entry for each policy; `tallies` are those of the jobs, in order, of which those
    /// at `varied` are variants.
    pub(crate) fn rates(
        &self,
        tallies: &[EpisodeTally],
        varied: &BTreeSet<usize>,
    ) -> Vec<PolicyRates> {
        let rates = |(number, (policy, path)): (usize, &(&str, Option<&str>))| {
            let is_own = |job: &usize| self.of_jobs[*job] == number && !varied.contains(job);
            let jobs = || (0..tallies.len()).filter(is_own).map(|job| &tallies[job]);
            let rates = || jobs().filter_map(EpisodeTally::rate);
            PolicyRates {
                policy_type: (*policy).to_owned(),
                path: path.map(str::to_owned),
                jobs: jobs().count() as u64,
                rated_jobs: rates().count() as u64,
                mean_task_success_rate: mean(rates()),
                rates: EpisodeTally::sum(jobs()),
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
        let is_ambiguous = self
            .per_policy
            .iter()
            .filter(|other| other.policy_type == policy.policy_type)
            .count()
            > 1;
        match &policy.path {
            Some(path) if is_ambiguous => format!("{} {path}", policy.policy_type),
            _ => policy.policy_type.clone(),
        }
    }
}

/// Returns one entry for each value of each property; `tallies` are those of the jobs, in order.
pub(crate) fn groups(jobs: &[Job], tallies: &[EpisodeTally]) -> Vec<GroupReport> {
    let mut groups: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (index, job) in jobs.iter().enumerate() {
        properties(job)
            .into_iter()
            .for_each(|property| groups.entry(property).or_default().push(index));
    }
    let report = |((by, value), members): ((String, String), Vec<usize>)| {
        let tallies = || members.iter().map(|index| &tallies[*index]);
        GroupReport {
            by,
            value,
            jobs: members.len() as u64,
            mean_task_success_rate: mean(tallies().filter_map(EpisodeTally::rate)),
            rates: EpisodeTally::sum(tallies()),
        }
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
