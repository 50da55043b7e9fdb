//! Two runs on the same episodes: which policy is the better one, and how sure is that?
//!
//! ```text
//! A, B ─► side (episodes by job, what was in effect) ─► pairs by job, number and seed ─► per task and over all:
//!                                                   McNemar, difference with interval, returns, largest rewards, lengths
//! ```
//! Episodes of the same seed begin in the same state, so the pair tells more than both rates do. What is not a pair is
//! counted and said, never mixed in; whatever else than the policy differs is told as a warning.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

use crate::stats::paired::{McNemar, MeanDifference, Pairs, mean_difference};
use crate::stats::wilson95;

mod side;
mod warnings;

use side::{Outcome, SideJob};
pub use side::{Side, SideError};

/// Schema of what `rrun compare --json` prints.
const SCHEMA: &str = "rrun/compare/1";

/// Two runs, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// `rrun/compare/1`.
    pub schema: &'static str,
    /// The first run.
    pub a: About,
    /// The second.
    pub b: About,
    /// Over all pairs.
    pub overall: Paired,
    /// By task, which is the environment of the job of A.
    pub per_task: BTreeMap<String, Paired>,
    /// By job of A.
    pub per_job: BTreeMap<String, Paired>,
    /// What could not be paired.
    pub unpaired: Unpaired,
    /// What else differs than the policy.
    pub warnings: Vec<String>,
}

/// What a side is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct About {
    /// As it was named.
    pub path: PathBuf,
    /// Its policies.
    pub policies: Vec<String>,
    /// Its episodes that were found.
    pub episodes: u64,
}

/// Pairs, and what they say; every difference is B − A.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Paired {
    /// How many.
    pub pairs: u64,
    /// By outcome.
    #[serde(flatten)]
    pub counts: Pairs,
    /// Share that A solved.
    pub rate_a: Option<f64>,
    /// Wilson interval of it at 95 %.
    pub wilson95_a: Option<[f64; 2]>,
    /// Share that B solved.
    pub rate_b: Option<f64>,
    /// Wilson interval of it at 95 %.
    pub wilson95_b: Option<[f64; 2]>,
    /// Rate of B minus rate of A.
    pub difference: Option<f64>,
    /// Newcombe's interval of it for pairs at 95 %.
    pub interval95: Option<[f64; 2]>,
    /// Whether both solve equally many; `null` where no pair differs.
    pub mcnemar: Option<McNemar>,
    /// Sum of rewards.
    pub returns: Option<MeanDifference>,
    /// Largest reward of a step, of the pairs in which both have one.
    pub max_rewards: Option<MeanDifference>,
    /// Steps.
    pub lengths: Option<MeanDifference>,
}

/// Episodes without a partner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unpaired {
    /// Jobs that A alone has.
    pub jobs_of_a: Vec<String>,
    /// Jobs that B alone has.
    pub jobs_of_b: Vec<String>,
    /// Episodes of common jobs that A alone has.
    pub episodes_of_a: u64,
    /// Episodes of common jobs that B alone has.
    pub episodes_of_b: u64,
    /// Episodes that both have, from different seeds.
    pub other_seed: u64,
    /// Episodes that both have from one seed, broken by an error in A.
    pub errors_of_a: u64,
    /// Episodes that both have from one seed, broken by an error in B.
    pub errors_of_b: u64,
}

/// Pairs of one set while they are counted.
#[derive(Default)]
struct Counting {
    counts: Pairs,
    returns: Vec<f64>,
    max_rewards: Vec<f64>,
    lengths: Vec<f64>,
}

impl Counting {
    fn add(&mut self, a: &Outcome, b: &Outcome) {
        let (Some(a_solved), Some(b_solved)) = (a.solved, b.solved) else { return };
        self.counts.add(a_solved, b_solved);
        self.returns.push(b.return_ - a.return_);
        self.max_rewards.extend(a.max_reward.zip(b.max_reward).map(|(a, b)| b - a));
        self.lengths.push(b.length as f64 - a.length as f64);
    }

    fn and(&mut self, other: &Self) {
        self.counts = self.counts.and(other.counts);
        self.returns.extend(&other.returns);
        self.max_rewards.extend(&other.max_rewards);
        self.lengths.extend(&other.lengths);
    }

    fn paired(&self) -> Paired {
        let (count, [a, b]) = (self.counts.count(), self.counts.solved());
        let rate = |solved: u64| (count > 0).then(|| solved as f64 / count as f64);
        Paired {
            pairs: count,
            counts: self.counts,
            rate_a: rate(a),
            wilson95_a: wilson95(a, count),
            rate_b: rate(b),
            wilson95_b: wilson95(b, count),
            difference: self.counts.difference(),
            interval95: self.counts.interval95(),
            mcnemar: self.counts.mcnemar(),
            returns: mean_difference(&self.returns),
            max_rewards: mean_difference(&self.max_rewards),
            lengths: mean_difference(&self.lengths),
        }
    }
}

/// Compares two runs; `renamed` says which job of B is the partner of a job of A where the names differ. Such a job has no
/// other partner, and within one run there are no others: a job would be compared with itself.
pub fn compare(a: &Side, b: &Side, renamed: &BTreeMap<String, String>) -> Comparison {
    let is_one_run = !renamed.is_empty() && a.is_also(b);
    let taken: BTreeSet<&String> = renamed.values().collect();
    let namesake = |name: &String| (!is_one_run && !taken.contains(name)).then(|| name.clone());
    let partner = |name: &String| b.jobs.get_key_value(&renamed.get(name).cloned().or_else(|| namesake(name))?);
    let mut unpaired = Unpaired::default();
    let (mut jobs, mut tasks, mut all) = (BTreeMap::new(), BTreeMap::<&str, Counting>::new(), Counting::default());
    let mut common: Vec<(&str, &SideJob, &SideJob)> = Vec::new();
    for (name, job) in &a.jobs {
        match partner(name) {
            Some((_, other)) => common.push((name, job, other)),
            None => unpaired.jobs_of_a.push(name.clone()),
        }
    }
    let taken: BTreeSet<&String> = a.jobs.keys().filter_map(|name| Some(partner(name)?.0)).collect();
    unpaired.jobs_of_b = b.jobs.keys().filter(|name| !taken.contains(name)).cloned().collect();
    for (name, job, other) in &common {
        let counting = pair(job, other, &mut unpaired);
        tasks.entry(&job.task).or_default().and(&counting);
        all.and(&counting);
        jobs.insert((*name).to_owned(), counting.paired());
    }
    Comparison {
        schema: SCHEMA,
        a: a.about(),
        b: b.about(),
        overall: all.paired(),
        per_task: tasks.iter().map(|(task, counting)| ((*task).to_owned(), counting.paired())).collect(),
        per_job: jobs,
        unpaired,
        warnings: warnings::warnings(&common),
    }
}

/// The pairs of one job; both sides ascend.
fn pair(a: &SideJob, b: &SideJob, unpaired: &mut Unpaired) -> Counting {
    let mut counting = Counting::default();
    let (mut ours, mut theirs) = (a.episodes.iter().peekable(), b.episodes.iter().peekable());
    loop {
        let order = match (ours.peek(), theirs.peek()) {
            (None, None) => return counting,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.episode.cmp(&b.episode),
        };
        match order {
            Ordering::Less => {
                ours.next();
                unpaired.episodes_of_a += 1;
            }
            Ordering::Greater => {
                theirs.next();
                unpaired.episodes_of_b += 1;
            }
            Ordering::Equal => {
                let (Some(a), Some(b)) = (ours.next(), theirs.next()) else { return counting };
                if a.seed == b.seed {
                    unpaired.errors_of_a += u64::from(a.solved.is_none());
                    unpaired.errors_of_b += u64::from(b.solved.is_none());
                    counting.add(a, b);
                } else {
                    unpaired.other_seed += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
