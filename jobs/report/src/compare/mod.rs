//! Compares two runs on the same episodes: which policy is better, and how certain that is.
//!
//! ```text
//! A, B ─► side (episodes by job) ─► pairs by job, number and seed ─► per task and overall:
//!            McNemar, difference with interval, returns, largest rewards, lengths
//! ```
//! Episodes with the same seed begin in the same state, so a pair tells more than the two rates do.
//! Unpaired episodes are counted and reported, but never mixed in. Variants have rows of their own, if
//! their controls are there. Any difference other than the policy is reported as a warning, because
//! the policy alone does not explain the results then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use jobs::count::listed;
use jobs::inputs::versions::others;
use serde::Serialize;

use crate::compare::side::{SideEpisode, SideJob};
use crate::stats::Solved;
use crate::stats::paired::{McNemar, MeanDifference, PairCounts, mean_difference};
use crate::verify::is_compared;

pub mod gate;
pub mod sequential;
mod side;

pub use side::Side;

/// Schema of the output of `rrun compare --json`.
const SCHEMA: &str = "rrun/compare/1";

/// The comparison of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Schema of the output: `rrun/compare/1`.
    pub schema: &'static str,
    /// The first run.
    pub a: ComparedRun,
    /// The second run.
    pub b: ComparedRun,
    /// The result over all pairs but those of variants: they are the episodes of their control under
    /// other conditions, and no further observations of the policy.
    pub overall: Paired,
    /// The same by task, which is the environment of the job of A.
    pub per_task: BTreeMap<String, Paired>,
    /// Results by job of A.
    pub per_job: BTreeMap<String, Paired>,
    /// Jobs and episodes that could not be paired.
    pub unpaired: Unpaired,
    /// Differences between the runs other than the policy.
    pub warnings: Vec<String>,
}

/// A run of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedRun {
    /// Path, as the command line named it.
    pub path: PathBuf,
    /// Policies of the run.
    pub policies: Vec<String>,
    /// Number of episodes found.
    pub episodes: u64,
}

/// Statistics over a set of pairs; every difference is B − A.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Paired {
    /// Number of pairs.
    pub pairs: u64,
    /// Pairs by outcome.
    #[serde(flatten)]
    pub counts: PairCounts,
    /// Share of pairs that A solved.
    pub rate_a: Option<f64>,
    /// Wilson interval of `rate_a` at 95 %.
    pub wilson95_a: Option<[f64; 2]>,
    /// Share of pairs that B solved.
    pub rate_b: Option<f64>,
    /// Wilson interval of `rate_b` at 95 %.
    pub wilson95_b: Option<[f64; 2]>,
    /// Rate of B minus rate of A.
    pub difference: Option<f64>,
    /// Newcombe's interval of the difference for pairs at 95 %.
    pub interval95: Option<[f64; 2]>,
    /// Test of the hypothesis that both solve equally many; `null` if no pair differs.
    pub mcnemar: Option<McNemar>,
    /// Difference of the sums of rewards.
    pub returns: Option<MeanDifference>,
    /// Difference of the largest rewards of a step, over the pairs in which both have one.
    pub max_rewards: Option<MeanDifference>,
    /// Difference of the numbers of steps.
    pub lengths: Option<MeanDifference>,
}

/// Jobs and episodes without a partner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unpaired {
    /// Jobs that only A has.
    pub jobs_of_a: Vec<String>,
    /// Jobs that only B has.
    pub jobs_of_b: Vec<String>,
    /// Number of episodes of common jobs that only A has.
    pub episodes_of_a: u64,
    /// Number of episodes of common jobs that only B has.
    pub episodes_of_b: u64,
    /// Number of common episodes with different seeds.
    pub other_seed: u64,
    /// Number of common episodes with the same seed that ended with an error in A.
    pub errors_of_a: u64,
    /// Number of common episodes with the same seed that ended with an error in B.
    pub errors_of_b: u64,
}

/// The pairs of one set while they are being counted.
#[derive(Default)]
struct Counting {
    counts: PairCounts,
    returns: Vec<f64>,
    max_rewards: Vec<f64>,
    lengths: Vec<f64>,
}

impl Counting {
    fn add(&mut self, a: &SideEpisode, b: &SideEpisode) {
        let max_rewards = a.max_reward.zip(b.max_reward);
        let (a, b) = (a.outcome, b.outcome);
        let (Some(a_solved), Some(b_solved)) = (a.success, b.success) else {
            return;
        };
        self.counts.add(a_solved, b_solved);
        self.returns.push(b.return_ - a.return_);
        self.max_rewards.extend(max_rewards.map(|(a, b)| b - a));
        self.lengths.push(b.length as f64 - a.length as f64);
    }

    fn paired(&self) -> Paired {
        let episodes = self.counts.count();
        let [a, b] = self
            .counts
            .solved()
            .map(|solved| Solved::new(solved, episodes));
        Paired {
            pairs: episodes,
            counts: self.counts,
            rate_a: a.rate(),
            wilson95_a: a.wilson95(),
            rate_b: b.rate(),
            wilson95_b: b.wilson95(),
            difference: self.counts.difference(),
            interval95: self.counts.interval95(),
            mcnemar: self.counts.mcnemar(),
            returns: mean_difference(&self.returns),
            max_rewards: mean_difference(&self.max_rewards),
            lengths: mean_difference(&self.lengths),
        }
    }
}

/// Compares two runs. `renamed` maps jobs of A to their partners in B if the names differ. Such a
/// job has no other partner. If both sides are the same run and `renamed` is not empty, only its
/// pairs are made: any other job would be compared with itself.
pub fn compare(a: &Side, b: &Side, renamed: &BTreeMap<String, String>) -> Comparison {
    let is_one_run = !renamed.is_empty() && a.is_also(b);
    let taken: BTreeSet<&String> = renamed.values().collect();
    let partner = |name: &String| match renamed.get(name) {
        Some(other) => b.jobs.get_key_value(other),
        None if is_one_run || taken.contains(name) => None,
        None => b.jobs.get_key_value(name),
    };
    let mut unpaired = Unpaired::default();
    let (mut common, mut partners) = (Vec::new(), BTreeSet::new());
    for (name, job) in &a.jobs {
        match partner(name) {
            Some((its_name, other)) => {
                partners.insert(its_name);
                common.push((name.as_str(), job, other));
            }
            None => unpaired.jobs_of_a.push(name.clone()),
        }
    }
    let alone = b.jobs.keys().filter(|name| !partners.contains(name));
    unpaired.jobs_of_b = alone.cloned().collect();
    let have_controls = common.iter().any(|(_, job, _)| !job.is_variant);
    let (mut per_job, mut all) = (BTreeMap::new(), Counting::default());
    let mut tasks: BTreeMap<&str, Counting> = BTreeMap::new();
    for (name, job, other) in &common {
        let mut of_job = Counting::default();
        let mut sets = vec![&mut of_job];
        if !(have_controls && job.is_variant) {
            sets.extend([tasks.entry(&job.task).or_default(), &mut all]);
        }
        pair(job, other, &mut unpaired, &mut sets);
        per_job.insert((*name).to_owned(), of_job.paired());
    }
    Comparison {
        schema: SCHEMA,
        a: a.about(),
        b: b.about(),
        overall: all.paired(),
        per_task: tasks
            .iter()
            .map(|(task, counting)| ((*task).to_owned(), counting.paired()))
            .collect(),
        per_job,
        unpaired,
        warnings: warnings(&common),
    }
}

/// Pairs the episodes of one job, and adds the pairs to sets.
fn pair(a: &SideJob, b: &SideJob, unpaired: &mut Unpaired, sets: &mut [&mut Counting]) {
    let mut common = 0;
    for (number, ours) in &a.episodes {
        let Some(theirs) = b.episodes.get(number) else {
            unpaired.episodes_of_a += 1;
            continue;
        };
        common += 1;
        if ours.outcome.seed != theirs.outcome.seed {
            unpaired.other_seed += 1;
            continue;
        }
        unpaired.errors_of_a += u64::from(ours.outcome.success.is_none());
        unpaired.errors_of_b += u64::from(theirs.outcome.success.is_none());
        sets.iter_mut().for_each(|set| set.add(ours, theirs));
    }
    unpaired.episodes_of_b += b.episodes.len() as u64 - common;
}

#[cfg(test)]
mod tests;

/// Number of jobs that one warning names.
const NAMED: usize = 3;

/// Returns one line per difference, with the jobs that it is in.
fn warnings(common: &[(&str, &SideJob, &SideJob)]) -> Vec<String> {
    let mut differences: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, a, b) in common {
        for difference in settings(a, b).into_iter().chain(jobs(a, b)) {
            differences.entry(difference).or_default().push(name);
        }
    }
    let line = |(difference, names): (String, Vec<&str>)| {
        let jobs = listed(&names, NAMED);
        match names.len() {
            1 => format!("{difference} ({jobs})"),
            count => format!("{difference} ({count} jobs {jobs})"),
        }
    };
    differences.into_iter().map(line).collect()
}

/// Returns the settings in effect that may affect the results and that both sides report with
/// different values.
fn settings(a: &SideJob, b: &SideJob) -> Vec<String> {
    let named = a.settings.iter().filter(|(name, _)| is_compared(name));
    let both = named.filter_map(|(name, ours)| Some((name, ours, b.settings.get(name)?)));
    let settings = both
        .filter(|(_, ours, theirs)| ours != theirs)
        .map(|(name, ours, theirs)| format!("{name} is {ours} in A and {theirs} in B"));
    let packages = others(&a.settings, &b.settings).into_iter();
    let packages = packages.map(|other| {
        let (package, ours, theirs) = (other.package, other.before, other.now);
        format!("{package} is {ours} in A and {theirs} in B")
    });
    settings.chain(packages).collect()
}

/// Returns the fields of the jobs that affect the results and differ, except the policy and the
/// number of episodes.
fn jobs(a: &SideJob, b: &SideJob) -> Vec<String> {
    let (Some(ours), Some(theirs)) = (&a.identity, &b.identity) else {
        return Vec::new();
    };
    let is_policy = |field: &str| field.starts_with("policy_");
    let changes = ours.differences(theirs).into_iter();
    let told = changes.filter(|change| {
        !is_policy(&change.field) && !change.is_coverage() && change.field != "seed"
    });
    told.map(|change| {
        let text = |value: Option<String>| value.unwrap_or_else(|| "not set".to_owned());
        format!(
            "{} is {} in A and {} in B",
            change.field,
            text(change.before),
            text(change.after)
        )
    })
    .collect()
}
