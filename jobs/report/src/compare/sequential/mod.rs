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
//! A run can also be compared with a published rate (`--claim`): its rounds are those of this run alone,
//! and the interval of the difference is that of this run's rate less that of the claim's, each of which
//! misses with a probability of at most half the level. It knows nothing of pairs, and needs more
//! episodes.
//!
//! The first of the two wins if both hold: a significant loss within the margin passes, as it does in
//! the [gate](crate::compare::gate) of a comparison of whole runs.

use std::collections::BTreeMap;
use std::fmt;

use jobs::claim::Claim;
use jobs::eval_args::EvalArgs;
use jobs::job::{Job, JobIndex, Length, Status};
use jobs::journal::{Decision, Question, Verdict};
use jobs::plan::RunPlan;
use jobs::seed;
use jobs::table::{MAX_ROWS, grid};

use crate::compare::side::EpisodeResult;
use crate::compare::{Side, SideError};
use crate::stats::anytime::PairedSums;
use crate::stats::binomial::clopper_pearson;
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
    let Some(question) = args.question() else {
        return Ok(None);
    };
    let test = SequentialTest {
        question,
        margin: args.margin,
        level: args.level,
    };
    match (&args.against, args.claim) {
        (Some(against), _) => {
            let reference = Side::read(against)?;
            SequentialComparison::new(&plan.jobs, plan.seed, &reference, test).map(Some)
        }
        (None, Some(claim)) => {
            SequentialComparison::with_claim(&plan.jobs, plan.seed, claim, test).map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// A run, its reference, and what the test has seen so far.
#[derive(Clone, Debug)]
pub struct SequentialComparison {
    test: SequentialTest,
    reference: Reference,
    jobs: BTreeMap<JobIndex, PairedJob>,
    comparable_rounds: u64,
    /// Number of rounds that the test has looked at.
    rounds: u64,
    sums: PairedSums,
    counts: PairCounts,
    errors: u64,
    verdict: Verdict,
}

/// What a run is compared with.
#[derive(Clone, Debug)]
enum Reference {
    /// A run, as the command line named it.
    Run(String),
    /// A published rate of all jobs together, with its interval.
    Claim { claim: Claim, interval: [f64; 2] },
}

/// A job of the run.
#[derive(Clone, Debug)]
struct PairedJob {
    /// Jobs with the same stream of seeds form a cluster.
    cluster: u64,
    /// Outcomes of the reference by episode; `None` for an error. With a claim, nothing was solved:
    /// the difference is this run's rate.
    reference: Vec<Option<bool>>,
    /// Outcomes of this run by episode, as far as they have ended.
    ended: Vec<Option<Ended>>,
    name: String,
    /// All episodes of the reference, whether they have a pair or not; empty with a claim.
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

    /// Returns the verdict about the rate of a run, if it is enough for one. `low` and `high` are the
    /// interval of the claimed rate.
    fn verdict_of_claim(self, sums: &PairedSums, [low, high]: [f64; 2]) -> Option<Verdict> {
        let Self { margin, level, .. } = self;
        // The claim has half of the level, and each side of this run's rate a quarter.
        let is_above = |rate: f64| rate <= -1.0 || sums.is_above(rate, level / 4.0);
        let is_below = |rate: f64| rate >= 1.0 || sums.is_below(rate, level / 4.0);
        match self.question {
            Question::Regression if is_above(high - margin) => Some(Verdict::Passed),
            Question::Regression if is_below(low) => Some(Verdict::Regression),
            Question::Reproduction if is_above(high - margin) && is_below(low + margin) => {
                Some(Verdict::Same)
            }
            Question::Reproduction if is_above(high) || is_below(low) => Some(Verdict::Different),
            Question::Regression | Question::Reproduction => None,
        }
    }
}

impl Reference {
    fn of_claim(claim: Claim, test: SequentialTest) -> Self {
        let interval = clopper_pearson(claim.solved, claim.episodes, test.level / 2.0);
        Self::Claim { claim, interval }
    }

    fn verdict(&self, test: SequentialTest, sums: &PairedSums) -> Option<Verdict> {
        match self {
            Self::Run(_) => test.verdict(sums),
            Self::Claim { interval, .. } => test.verdict_of_claim(sums, *interval),
        }
    }

    /// Returns the confidence sequence of the rate of this run minus that of the reference.
    fn interval(&self, test: SequentialTest, sums: &PairedSums) -> [f64; 2] {
        match self {
            Self::Run(_) => sums.interval(test.level),
            Self::Claim { interval, .. } => {
                // The sequence is that of a mean from −1 to 1, and a rate is at least 0.
                let [low, high] = sums.interval(test.level / 2.0).map(|rate| rate.max(0.0));
                [low - interval[1], high - interval[0]]
            }
        }
    }

    fn difference(&self, counts: &PairCounts) -> Option<f64> {
        let difference = counts.difference()?;
        Some(match self {
            Self::Run(_) => difference,
            Self::Claim { claim, .. } => difference - claim.rate(),
        })
    }

    fn claim(&self) -> Option<Claim> {
        match self {
            Self::Run(_) => None,
            Self::Claim { claim, .. } => Some(*claim),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(name) => f.write_str(name),
            Self::Claim { claim, .. } => write!(f, "{claim}"),
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
        let paired = pending(jobs)
            .map(|job| Ok((job.index, PairedJob::new(job, seed, reference)?)))
            .collect::<Result<_, ReferenceError>>()?;
        let name = reference.path().display().to_string();
        Self::of_pairs(paired, Reference::Run(name), test)
    }

    /// Compares the pending jobs of a run with a published rate of all of them together.
    ///
    /// # Errors
    /// Returns a [`ReferenceError`] for the first job without a number of episodes.
    pub fn with_claim(
        jobs: &[Job],
        seed: u64,
        claim: Claim,
        test: SequentialTest,
    ) -> Result<Self, ReferenceError> {
        let paired = pending(jobs)
            .map(|job| Ok((job.index, PairedJob::without_reference(job, seed)?)))
            .collect::<Result<_, ReferenceError>>()?;
        Self::of_pairs(paired, Reference::of_claim(claim, test), test)
    }

    fn of_pairs(
        paired: BTreeMap<JobIndex, PairedJob>,
        reference: Reference,
        test: SequentialTest,
    ) -> Result<Self, ReferenceError> {
        let lengths = paired.values().map(|job| job.reference.len() as u64);
        let comparable_rounds = lengths.min().ok_or(ReferenceError::NoJobs)?;
        Ok(Self {
            test,
            reference,
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
            if let Some(verdict) = self.reference.verdict(self.test, &self.sums) {
                self.verdict = verdict;
            }
        }
        self.verdict != Verdict::Undecided
    }

    /// Returns the result so far; `at` is the time, RFC 3339 in UTC.
    pub fn decision(&self, at: String) -> Decision {
        let counts = self.counts;
        Decision {
            against: self.reference.to_string(),
            claim: self.reference.claim(),
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
            difference: self.reference.difference(&counts),
            interval: (counts.count() > 0).then(|| self.reference.interval(self.test, &self.sums)),
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
        let mut rows: Vec<_> = self.jobs.values().take(MAX_ROWS).map(row).collect();
        if let Some(claim) = self.reference.claim() {
            let solved = self.counts.only_b;
            let of_run = Rate {
                solved,
                episodes: self.counts.count(),
            };
            let of_claim = Rate {
                solved: claim.solved,
                episodes: claim.episodes,
            };
            rows.push(["all".to_owned(), of_claim.to_string(), of_run.to_string()]);
        }
        let mut text = grid(["Job", "Reference", "This run"], &rows);
        if self.jobs.len() > MAX_ROWS {
            text += &format!("… and {} more jobs\n", self.jobs.len() - MAX_ROWS);
        }
        text
    }

    /// Returns the published rate that the run is compared with; `None` if the reference is a run.
    pub fn claim(&self) -> Option<Claim> {
        self.reference.claim()
    }

    /// Returns the smallest margin that all rounds together can exclude if this run solves the claimed
    /// share; `None` if the reference is a run.
    pub fn smallest_margin(&self) -> Option<f64> {
        let claim = self.reference.claim()?;
        let mut sums = self.sums.clone();
        let mut owed = 0.0;
        for _ in 0..self.comparable_rounds {
            for pairs in clusters(&self.jobs).into_values() {
                owed += claim.rate() * f64::from(pairs);
                let solved = (owed.round() as i32).clamp(0, pairs.cast_signed());
                owed -= f64::from(solved);
                sums.add(pairs, solved);
            }
        }
        let [low, high] = self.reference.interval(self.test, &sums);
        Some(match self.test.question {
            Question::Regression => -low,
            Question::Reproduction => high.max(-low),
        })
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
    fn without_reference(job: &Job, seed: u64) -> Result<Self, ReferenceError> {
        let count = episodes(job)? as usize;
        Ok(Self {
            cluster: seed::episode(seed, job, 0),
            name: job.name.clone(),
            rates_of_reference: Rate::default(),
            ended: vec![None; count],
            reference: vec![Some(false); count],
        })
    }

    fn new(job: &Job, seed: u64, reference: &Side) -> Result<Self, ReferenceError> {
        let (name, path) = (job.name.clone(), reference.path().display().to_string());
        let count = episodes(job)?;
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

fn pending(jobs: &[Job]) -> impl Iterator<Item = &Job> {
    jobs.iter().filter(|job| job.status == Status::Pending)
}

fn episodes(job: &Job) -> Result<u64, ReferenceError> {
    match job.length {
        Length::Episodes(count) => Ok(count),
        Length::Steps(_) | Length::Policy => Err(ReferenceError::Uncounted {
            job: job.name.clone(),
        }),
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
