//! Computes the rates of each policy. A policy is a type, and a path if jobs of that type have
//! several. A rate over several policies describes none of them, so each has its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::merged::Merged;
use crate::schema::{PolicyRates, Report};
use crate::sections::rates::EpisodeTally;
use crate::stats::mean;

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

    /// Returns one entry for each policy; `tallies` are those of the jobs, in order, of which those at
    /// `varied` are variants.
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
