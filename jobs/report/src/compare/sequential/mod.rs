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
//! A run can also be compared with a published rate (`--against 462/500`): its rounds are those of this run alone,
//! and the interval of the difference is that of this run's rate less that of the claim's, each of which
//! misses with a probability of at most half the level. It knows nothing of pairs, and needs more
//! episodes.
//!
//! The first of the two wins if both hold: a significant loss within the margin passes, as it does in
//! the [gate](crate::compare::gate) of a comparison of whole runs.

use std::collections::BTreeMap;

use jobs::eval_args::{Against, EvalArgs};
use jobs::job::{Job, JobIndex, Status};
use jobs::journal::{Claim, Decision, Question, Verdict};
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use jobs::table::Table;

use crate::compare::Side;
use crate::compare::sequential::reference::{PairedJob, Reference, rated};
use crate::stats::Solved;
use crate::stats::anytime::PairedSums;
use crate::stats::paired::PairCounts;

mod reference;

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

/// Returns the comparison that the command line of a run asks for; `None` if it runs to its end.
///
/// # Errors
/// Refuses a reference that cannot be read or compared.
pub fn of_run(args: &EvalArgs, plan: &RunPlan) -> Result<Option<SequentialComparison>, Refusal> {
    let Some(question) = args.question() else {
        return Ok(None);
    };
    let test = SequentialTest {
        question,
        margin: args.margin,
        level: args.level,
    };
    let compared = match &args.against {
        None => return Ok(None),
        Some(Against::Run(path)) => Side::read(path)
            .and_then(|side| SequentialComparison::new(&plan.jobs, plan.seed, &side, test)),
        Some(Against::Claim(claim)) => {
            SequentialComparison::with_claim(&plan.jobs, plan.seed, *claim, test)
        }
    };
    compared.map(Some).map_err(|err| err.inside("--against"))
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

impl SequentialComparison {
    /// Pairs the pending jobs of a run, whose base seed is `seed`, with those of the reference.
    ///
    /// # Errors
    /// Refuses the first job that has no pairs.
    pub fn new(
        jobs: &[Job],
        seed: u64,
        reference: &Side,
        test: SequentialTest,
    ) -> Result<Self, Refusal> {
        let name = reference.path.display().to_string();
        let pair = |job: &Job| PairedJob::new(job, seed, reference);
        Self::of(jobs, Reference::of_run(name), test, pair)
    }

    /// Compares the pending jobs of a run with a published rate of all of them together.
    ///
    /// # Errors
    /// Refuses the first job without a number of episodes.
    pub fn with_claim(
        jobs: &[Job],
        seed: u64,
        claim: Claim,
        test: SequentialTest,
    ) -> Result<Self, Refusal> {
        let pair = |job: &Job| PairedJob::without_reference(job, seed);
        Self::of(jobs, Reference::of_claim(claim, test), test, pair)
    }

    fn of(
        jobs: &[Job],
        reference: Reference,
        test: SequentialTest,
        pair: impl Fn(&Job) -> Result<PairedJob, Refusal>,
    ) -> Result<Self, Refusal> {
        let pending = jobs.iter().filter(|job| job.status == Status::Pending);
        let paired = pending.map(|job| Ok((job.index, pair(job)?)));
        let jobs: BTreeMap<_, _> = paired.collect::<Result<_, Refusal>>()?;
        let rounds = jobs.values().map(|job| job.reference.len() as u64).min();
        Ok(Self {
            test,
            reference,
            comparable_rounds: rounds.ok_or_else(|| Refusal::new("no job is pending"))?,
            rounds: 0,
            sums: PairedSums::new(clusters(&jobs).into_values().max().unwrap_or(1)),
            jobs,
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
        if let Some(ended @ (None | Some(None))) = ended {
            *ended = Some(solved);
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
            against: self.reference.name.clone(),
            claim: self.reference.claim,
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
            let ended = Solved::of(job.ended.iter().flatten().copied());
            [
                job.name.clone(),
                rated(job.rates_of_reference),
                rated(ended),
            ]
        };
        let head = ["Job", "Reference", "This run"];
        let mut table = Table::first(head, self.jobs.values().map(row), "job", "");
        if let Some(claim) = self.reference.claim {
            let of_run = Solved::new(self.counts.only_b, self.counts.count());
            let of_claim = Solved::new(claim.solved, claim.episodes);
            table.push(["all".to_owned(), rated(of_claim), rated(of_run)]);
        }
        table.grid()
    }

    /// Returns the published rate that the run is compared with; `None` if the reference is a run.
    pub fn claim(&self) -> Option<Claim> {
        self.reference.claim
    }

    /// Returns the smallest margin that all rounds together can exclude if this run solves the claimed
    /// share; `None` if the reference is a run.
    pub fn smallest_margin(&self) -> Option<f64> {
        let claim = self.reference.claim?;
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
            let (Some(a), Some(Some(b))) = (job.reference[round], job.ended[round]) else {
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

/// Returns the number of jobs of each cluster.
fn clusters(jobs: &BTreeMap<JobIndex, PairedJob>) -> BTreeMap<u64, u32> {
    let mut sizes = BTreeMap::new();
    for job in jobs.values() {
        *sizes.entry(job.cluster).or_default() += 1;
    }
    sizes
}

#[cfg(test)]
mod tests;
