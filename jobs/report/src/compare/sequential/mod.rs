//! Compares a run with a reference run while it runs, and decides as early as the episodes allow.
//!
//! ```text
//!            job 0  job 1  job 2
//! round 0      ✓      ✓      ✓      every episode has ended: the test looks
//! round 1      ✓      ✓      ✓      … and again
//! round 2      ✓             ✓      not complete: nobody looks, although some have ended
//! ```
//! Round `r` has episode `r` of every job, each paired with the same episode of the reference. Only
//! complete rounds count, in order, whatever has ended beyond them; the first at which the test
//! decides is the decision, so that it depends neither on the number of ranks nor on their speed.
//! The rounds end with the shortest job, or where the reference has no more episodes of a job. A
//! pair in which an episode ended with an error does not count.
//!
//! ```text
//! question      verdict      when                                           probability of error
//! regression    passed       a loss of the margin is excluded               level / 2
//!               regression   the mean difference is below 0                 level / 2
//! reproduction  same         a difference of the margin is excluded         level
//!               different    the mean difference is not 0                   level
//! ```
//! The first of the two wins if both hold: a significant loss within the margin passes, as it does in
//! the [gate](crate::compare::gate) of a comparison of whole runs.

use std::collections::BTreeMap;
use std::fmt;

use jobs::eval_args::EvalArgs;
use jobs::job::{Job, JobIndex, Length, Status};
use jobs::journal::{Decision, Question, Verdict};
use jobs::plan::RunPlan;
use jobs::seed;
use jobs::table::{MAX_ROWS, grid};

use crate::compare::side::EpisodeResult;
use crate::compare::{Side, SideError};
use crate::stats::anytime::PairedSums;
use crate::stats::paired::PairCounts;
use crate::stats::wilson95;

/// The question of a sequential test, and how certain its answer has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SequentialTest {
    /// What is to be found out.
    pub question: Question,
    /// The margin, as a difference of rates: 0.05 is five percentage points.
    pub margin: f64,
    /// Probability of a wrong verdict, at most, see the table above.
    pub level: f64,
}

/// Why a reference cannot be compared with a run.
#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    /// The reference cannot be read.
    #[error(transparent)]
    Side(#[from] SideError),
    /// A job has no number of episodes.
    #[error("job `{job}` has no num_episodes, so that its episodes have no pairs")]
    Uncounted {
        /// Name of the job.
        job: String,
    },
    /// The reference has no such job.
    #[error("`{reference}` has no job `{job}`")]
    NoJob {
        /// The reference, as the command line named it.
        reference: String,
        /// Name of the job.
        job: String,
    },
    /// The reference does not have the first episode of a job.
    #[error("`{reference}` has no episode 0 of job `{job}`")]
    NoEpisode {
        /// The reference, as the command line named it.
        reference: String,
        /// Name of the job.
        job: String,
    },
    /// The episodes of a job begin in other states than those of the reference.
    #[error(
        "job `{job}` has other seeds in `{reference}`; give both runs the same --seed, or their \
         jobs the same `seed`"
    )]
    Seeds {
        /// The reference, as the command line named it.
        reference: String,
        /// Name of the job.
        job: String,
    },
    /// No job is to be run.
    #[error("no job is pending")]
    NoJobs,
}

/// Returns the comparison that the command line of a run asks for; `None` if it runs to its end.
///
/// # Errors
/// Returns a [`ReferenceError`] if the reference cannot be read or compared.
pub fn of_run(
    args: &EvalArgs,
    plan: &RunPlan,
) -> Result<Option<SequentialComparison>, ReferenceError> {
    let (Some(question), Some(against)) = (args.question(), &args.against) else {
        return Ok(None);
    };
    let test = SequentialTest {
        question,
        margin: args.margin,
        level: args.level,
    };
    let reference = Side::read(against)?;
    SequentialComparison::new(&plan.jobs, plan.seed, &reference, test).map(Some)
}

/// A run, its reference, and what the test has seen so far.
#[derive(Clone, Debug)]
pub struct SequentialComparison {
    test: SequentialTest,
    reference: String,
    jobs: BTreeMap<JobIndex, PairedJob>,
    comparable_rounds: u64,
    /// Number of rounds that the test has looked at.
    rounds: u64,
    sums: PairedSums,
    counts: PairCounts,
    errors: u64,
    verdict: Verdict,
}

/// A job of the run.
#[derive(Clone, Debug)]
struct PairedJob {
    /// Jobs with the same stream of seeds form a cluster.
    cluster: u64,
    /// Outcomes of the reference by episode; `None` for an error.
    reference: Vec<Option<bool>>,
    /// Outcomes of this run by episode, as far as they have ended.
    ended: Vec<Option<Ended>>,
    name: String,
    /// All episodes of the reference, whether they have a pair or not.
    rates_of_reference: Rate,
}

/// Solved episodes of a job, and all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    solved: u64,
    episodes: u64,
}

/// How an episode of this run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Scored(bool),
    Error,
}

impl SequentialTest {
    /// Returns the verdict if these differences are enough for one.
    fn verdict(self, sums: &PairedSums) -> Option<Verdict> {
        let Self { margin, level, .. } = self;
        let half = level / 2.0;
        match self.question {
            Question::Regression if sums.is_above(-margin, half) => Some(Verdict::Passed),
            Question::Regression if sums.is_below(0.0, half) => Some(Verdict::Regression),
            Question::Reproduction
                if sums.is_above(-margin, level) && sums.is_below(margin, level) =>
            {
                Some(Verdict::Same)
            }
            Question::Reproduction if sums.is_above(0.0, half) || sums.is_below(0.0, half) => {
                Some(Verdict::Different)
            }
            Question::Regression | Question::Reproduction => None,
        }
    }
}

impl SequentialComparison {
    /// Pairs the pending jobs of a run, whose base seed is `seed`, with those of the reference.
    ///
    /// # Errors
    /// Returns a [`ReferenceError`] for the first job that has no pairs.
    pub fn new(
        jobs: &[Job],
        seed: u64,
        reference: &Side,
        test: SequentialTest,
    ) -> Result<Self, ReferenceError> {
        let pending = jobs.iter().filter(|job| job.status == Status::Pending);
        let paired: BTreeMap<_, _> = pending
            .map(|job| Ok((job.index, PairedJob::new(job, seed, reference)?)))
            .collect::<Result<_, ReferenceError>>()?;
        let lengths = paired.values().map(|job| job.reference.len() as u64);
        let comparable_rounds = lengths.min().ok_or(ReferenceError::NoJobs)?;
        Ok(Self {
            test,
            reference: reference.path().display().to_string(),
            comparable_rounds,
            rounds: 0,
            sums: PairedSums::new(largest_cluster(&paired)),
            jobs: paired,
            counts: PairCounts::default(),
            errors: 0,
            verdict: Verdict::Undecided,
        })
    }

    /// Takes note of an episode that has ended; `solved` is `None` if it ended with an error. The
    /// first score of an episode counts.
    pub fn add(&mut self, job: JobIndex, episode: u64, solved: Option<bool>) {
        let ended = self
            .jobs
            .get_mut(&job)
            .zip(usize::try_from(episode).ok())
            .and_then(|(job, episode)| job.ended.get_mut(episode));
        let Some(ended) = ended else { return };
        match (*ended, solved) {
            (Some(Ended::Scored(_)), _) => {}
            (_, Some(solved)) => *ended = Some(Ended::Scored(solved)),
            (_, None) => *ended = Some(Ended::Error),
        }
    }

    /// Looks at each round that is complete by now, up to the first that decides. Returns whether
    /// there is a decision.
    pub fn look(&mut self) -> bool {
        while self.verdict == Verdict::Undecided && self.next_is_complete() {
            self.take_round();
            if let Some(verdict) = self.test.verdict(&self.sums) {
                self.verdict = verdict;
            }
        }
        self.verdict != Verdict::Undecided
    }

    /// Returns the result so far; `at` is the time, RFC 3339 in UTC.
    pub fn decision(&self, at: String) -> Decision {
        let counts = self.counts;
        Decision {
            against: self.reference.clone(),
            question: self.test.question,
            margin: self.test.margin,
            level: self.test.level,
            verdict: self.verdict,
            rounds: self.rounds,
            comparable_rounds: self.comparable_rounds,
            both: counts.both,
            only_a: counts.only_a,
            only_b: counts.only_b,
            neither: counts.neither,
            errors: self.errors,
            difference: counts.difference(),
            interval: (counts.count() > 0).then(|| self.sums.interval(self.test.level)),
            at,
            launch: None,
        }
    }

    /// Returns the number of rounds that the reference and the shortest job allow.
    pub fn comparable_rounds(&self) -> u64 {
        self.comparable_rounds
    }

    /// Returns the number of jobs that share the states they begin in with others.
    pub fn clustered_jobs(&self) -> usize {
        let clusters = clusters(&self.jobs).into_values();
        clusters.filter(|size| *size > 1).sum::<u32>() as usize
    }

    /// Returns a table of the jobs: the rate of the reference, over all of its episodes, beside that
    /// of this run, over the episodes that have ended and have a pair.
    pub fn table(&self) -> String {
        let row = |job: &PairedJob| {
            let ended = job.ended.iter().flatten().map(|ended| match ended {
                Ended::Scored(solved) => Some(*solved),
                Ended::Error => None,
            });
            [
                job.name.clone(),
                job.rates_of_reference.to_string(),
                Rate::of(ended).to_string(),
            ]
        };
        let rows: Vec<_> = self.jobs.values().take(MAX_ROWS).map(row).collect();
        let mut text = grid(["Job", "Reference", "This run"], &rows);
        if self.jobs.len() > rows.len() {
            text += &format!("… and {} more jobs\n", self.jobs.len() - rows.len());
        }
        text
    }

    fn next_is_complete(&self) -> bool {
        let round = self.rounds as usize;
        self.rounds < self.comparable_rounds
            && self.jobs.values().all(|job| job.ended[round].is_some())
    }

    /// Adds the next round, which must be complete.
    fn take_round(&mut self) {
        let round = self.rounds as usize;
        let mut sums: BTreeMap<u64, (u32, i32)> = BTreeMap::new();
        for job in self.jobs.values() {
            let (Some(a), Some(Ended::Scored(b))) = (job.reference[round], job.ended[round]) else {
                self.errors += 1;
                continue;
            };
            self.counts.add(a, b);
            let (pairs, sum) = sums.entry(job.cluster).or_default();
            *pairs += 1;
            *sum += i32::from(b) - i32::from(a);
        }
        for (pairs, sum) in sums.into_values() {
            self.sums.add(pairs, sum);
        }
        self.rounds += 1;
    }
}

impl PairedJob {
    fn new(job: &Job, seed: u64, reference: &Side) -> Result<Self, ReferenceError> {
        let (name, path) = (job.name.clone(), reference.path().display().to_string());
        let Length::Episodes(count) = job.length else {
            return Err(ReferenceError::Uncounted { job: name });
        };
        let Some(side) = reference.jobs.get(&job.name) else {
            return Err(ReferenceError::NoJob {
                reference: path,
                job: name,
            });
        };
        let Some(first) = side.episodes.first().filter(|first| first.episode == 0) else {
            return Err(ReferenceError::NoEpisode {
                reference: path,
                job: name,
            });
        };
        if first.seed != seed::episode(seed, job, 0) {
            return Err(ReferenceError::Seeds {
                reference: path,
                job: name,
            });
        }
        let is_paired = |(number, result): &(u64, &EpisodeResult)| {
            result.episode == *number && result.seed == seed::episode(seed, job, *number)
        };
        let outcomes: Vec<_> = (0..count)
            .zip(&side.episodes)
            .take_while(is_paired)
            .map(|(_, result)| result.solved)
            .collect();
        Ok(Self {
            cluster: first.seed,
            name,
            rates_of_reference: Rate::of(side.episodes.iter().map(|result| result.solved)),
            ended: vec![None; outcomes.len()],
            reference: outcomes,
        })
    }
}

impl Rate {
    /// Counts episodes; one that ended with an error is not solved.
    fn of(outcomes: impl Iterator<Item = Option<bool>>) -> Self {
        outcomes.fold(Self::default(), |rate, solved| Self {
            solved: rate.solved + u64::from(solved == Some(true)),
            episodes: rate.episodes + 1,
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { solved, episodes } = *self;
        match wilson95(solved, episodes) {
            None => write!(f, "-"),
            Some([low, high]) => write!(
                f,
                "{:.1} %, {solved} of {episodes} ({:.1} to {:.1})",
                100.0 * solved as f64 / episodes as f64,
                low * 100.0,
                high * 100.0
            ),
        }
    }
}

/// Returns the number of jobs of each cluster.
fn clusters(jobs: &BTreeMap<JobIndex, PairedJob>) -> BTreeMap<u64, u32> {
    let mut sizes = BTreeMap::new();
    for job in jobs.values() {
        *sizes.entry(job.cluster).or_default() += 1;
    }
    sizes
}

fn largest_cluster(jobs: &BTreeMap<JobIndex, PairedJob>) -> u32 {
    clusters(jobs).into_values().max().unwrap_or(1)
}

#[cfg(test)]
mod tests;
