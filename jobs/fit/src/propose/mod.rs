//! Proposes numbers of environments and rows that divide the work evenly and fit into memory.
//!
//! All proposals fit together. First every job gets the same number of environments, as large as
//! fits for all jobs; then each job in file order gets as many more as still fit.

use jobs::job::{Job, MAX_ENVS, MAX_TOTAL_ENVS};
use jobs::placement::Division;
use jobs::table::Table;
use serde::Serialize;

use crate::amount::{Fit, Need};
use crate::planner::{MemoryPlanner, Takes};

/// Maximum rows of one inference that are proposed. More have no benefit: inference is
/// compute-bound from about 8 on.
const MOST_ROWS: usize = 4096;

/// The proposal for a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    /// Name of the job.
    pub job: String,
    /// Current `num_envs`, or `total_num_envs` of a shared job.
    pub num_envs: usize,
    /// The largest number that divides the work and fits, together with the proposals for all other
    /// jobs.
    pub proposed_num_envs: Option<usize>,
    /// The reason why the number is not larger.
    pub why: ProposalLimit,
    /// Rows of one inference, if the policy's memory depends on them.
    pub batch: Option<BatchRows>,
}

impl Proposal {
    /// Returns a table for the terminal with one row per job: its current numbers and the proposed
    /// ones.
    pub fn table(proposals: &[Self]) -> String {
        let number = |number: Option<usize>, none: &str| match number {
            Some(number) => number.to_string(),
            None => none.to_owned(),
        };
        let row = |proposal: &Self| {
            let largest = proposal.batch.map(|batch| number(batch.largest, "none"));
            [
                proposal.job.clone(),
                proposal.num_envs.to_string(),
                number(proposal.proposed_num_envs, "-"),
                proposal.why.text().to_owned(),
                number(proposal.batch.map(|batch| batch.rows), "-"),
                largest.unwrap_or_else(|| "-".to_owned()),
            ]
        };
        let rows: Vec<_> = proposals.iter().map(row).collect();
        let head = [
            "Job",
            "Envs",
            "Proposed",
            "Because",
            "Batch",
            "Largest Batch",
        ];
        Table::first(head, rows, "job", ", see --json").grid()
    }
}

/// What limits a proposed number of environments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalLimit {
    /// More environments do not fit.
    Memory,
    /// More episodes cannot run at a time.
    Episodes,
    /// A jobs file may not have more.
    Most,
    /// Not even the smallest number fits.
    TooLittle,
    /// The memory of an environment is unknown.
    UnknownEnvironment,
    /// The memory of a GPU is unknown.
    UnknownGpu,
    /// The job is not to run.
    NotPending,
}

/// Rows of one inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BatchRows {
    /// Number of rows that are inferred together now.
    pub rows: usize,
    /// Largest number that fits; `None` if not even one row fits or the memory of the GPU is
    /// unknown.
    pub largest: Option<usize>,
}

impl ProposalLimit {
    /// Returns the text for a table.
    pub fn text(self) -> &'static str {
        match self {
            Self::Memory => "more do not fit",
            Self::Episodes => "one per episode",
            Self::Most => "the maximum of a job",
            Self::TooLittle => "even the smallest number does not fit",
            Self::UnknownEnvironment => "the memory of an environment is unknown",
            Self::UnknownGpu => "the memory of a GPU is unknown",
            Self::NotPending => "the job will not run",
        }
    }
}

/// The numbers of environments that a job may have.
#[derive(Clone, Copy, Debug)]
struct Choices {
    /// Every number is a multiple of this.
    unit: usize,
    /// The largest useful number.
    most: usize,
    /// Number of episodes that run at a time, if it is known beforehand.
    episodes: Option<usize>,
    /// Whether only the smallest number fits.
    is_bound_by_memory: bool,
}

impl Choices {
    /// Returns the choices of a job that `ranks` ranks run, each some of its episodes.
    fn of(job: &Job, ranks: usize, planner: &MemoryPlanner<'_>) -> Self {
        let ranks = if job.total_num_envs.is_some() {
            1
        } else {
            ranks.max(1)
        };
        let at_a_time = |count: u64| {
            count
                .div_ceil(job.num_rebuilds.max(1))
                .div_ceil(ranks as u64)
                .max(1)
        };
        let episodes = job.episodes();
        let episodes = episodes.map(|count| at_a_time(job.selected(count)) as usize);
        let (unit, limit) = match job.total_num_envs {
            None => (1, MAX_ENVS),
            Some(total) => (
                Division {
                    total,
                    workers: planner.placement.env.len(),
                    ranks: planner.placement.world_size(),
                    stages: job.rollout.pipeline_stage_num.unwrap_or(1),
                }
                .unit(),
                MAX_TOTAL_ENVS,
            ),
        };
        Self {
            unit: unit.max(1),
            most: episodes.unwrap_or(limit).min(limit),
            episodes,
            is_bound_by_memory: false,
        }
    }

    /// Returns the best number up to `cap`, which is at least the smallest choice. It is a number
    /// that divides the episodes evenly, if one above half of `cap` does; otherwise the smallest
    /// number that needs equally few rounds.
    fn best(self, cap: usize) -> usize {
        let cap = (cap.min(self.most.max(self.unit)) / self.unit * self.unit).max(self.unit);
        let Some(episodes) = self.episodes else {
            return cap;
        };
        let multiples = |from: usize| (from..=cap / self.unit).rev().map(|nth| nth * self.unit);
        let divisor = multiples((cap / self.unit).div_ceil(2).max(1))
            .find(|number| episodes.is_multiple_of(*number));
        let rounds = episodes.div_ceil(cap);
        divisor
            .unwrap_or_else(|| episodes.div_ceil(rounds).div_ceil(self.unit) * self.unit)
            .min(cap)
    }
}

impl MemoryPlanner<'_> {
    /// Returns a proposal for every job, in file order.
    pub fn propose(&self) -> Vec<Proposal> {
        let search = Search::new(self);
        let levelled = search.level();
        let found = search.raise(levelled);
        (0..self.jobs.len())
            .map(|job| search.proposal(job, &found))
            .collect()
    }
}

/// The state of the search, by position of the job.
struct Search<'a> {
    planner: &'a MemoryPlanner<'a>,
    choices: Vec<Choices>,
    /// For a job that keeps its number, the reason.
    fixed: Vec<Option<ProposalLimit>>,
    /// GPUs that are tight even if all jobs have the smallest number of environments; nothing is
    /// added to them.
    cramped: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(planner: &'a MemoryPlanner<'a>) -> Self {
        let choices: Vec<_> = planner
            .jobs
            .iter()
            .zip(&planner.ranks)
            .map(|(job, ranks)| Choices::of(job, ranks.len(), planner))
            .collect();
        let mut search = Self {
            planner,
            choices,
            fixed: vec![None; planner.jobs.len()],
            cramped: Vec::new(),
        };
        for job in 0..planner.jobs.len() {
            search.fixed[job] = search.reason_to_keep(job);
        }
        search.leave_cramped_gpus_alone();
        search
    }

    fn leave_cramped_gpus_alone(&mut self) {
        let units: Vec<_> = self.choices.iter().map(|choices| choices.unit).collect();
        let fewest = self.all(&units);
        let needs = self.planner.sum(&fewest);
        let gpus = |is: fn(Fit) -> bool| -> Vec<usize> {
            let fit = |need: &&Need| is(need.fit(self.planner.budget(need.gpu)));
            needs.iter().filter(fit).map(|need| need.gpu).collect()
        };
        let (hopeless, cramped) = (gpus(Fit::is_too_much), gpus(Fit::is_cramped));
        for (job, takes) in fewest.iter().enumerate() {
            let is_on = |gpus: &[usize]| takes.iter().any(|(_, need)| gpus.contains(&need.gpu));
            if is_on(&hopeless) && self.fixed[job].is_none() {
                self.fixed[job] = Some(ProposalLimit::TooLittle);
            } else if is_on(&cramped) {
                self.choices[job].most = self.choices[job].unit;
                self.choices[job].is_bound_by_memory = true;
            }
        }
        self.cramped = cramped;
    }

    fn reason_to_keep(&self, job: usize) -> Option<ProposalLimit> {
        let planner = self.planner;
        let choices = self.choices[job];
        let takes = planner.takes(job, choices.most.max(choices.unit), None);
        let mut gpus = takes.iter().map(|(_, need)| need.gpu);
        if planner.ranks[job].is_empty() {
            Some(ProposalLimit::NotPending)
        } else if planner.environments[job].each.has_unknown {
            Some(ProposalLimit::UnknownEnvironment)
        } else if gpus.any(|gpu| planner.budget(gpu).is_none()) {
            Some(ProposalLimit::UnknownGpu)
        } else {
            None
        }
    }

    /// Returns the memory of all jobs with these numbers.
    fn all(&self, numbers: &[usize]) -> Vec<Takes> {
        let numbers = numbers.iter().enumerate();
        numbers
            .map(|(job, number)| self.takes(job, *number))
            .collect()
    }

    /// Returns the memory of a job with this number, or with its own if the job keeps that.
    fn takes(&self, job: usize, num_envs: usize) -> Takes {
        let number = if self.fixed[job].is_some() {
            self.planner.jobs[job].num_envs
        } else {
            num_envs
        };
        self.planner.takes(job, number, None)
    }

    fn fits(&self, takes: &[Takes]) -> bool {
        let needs = self.planner.sum(takes);
        let mut others = needs
            .iter()
            .filter(|need| !self.cramped.contains(&need.gpu));
        others.all(|need| !need.fit(self.planner.budget(need.gpu)).is_cramped())
    }

    /// Returns the numbers for the largest common level that fits, each within the choices of its
    /// job.
    fn level(&self) -> Vec<usize> {
        let at = |level: usize| -> Vec<usize> {
            let choices = self.choices.iter();
            choices.map(|choices| choices.best(level)).collect()
        };
        let fits = |level: usize| self.fits(&self.all(&at(level)));
        at(largest(1, MAX_TOTAL_ENVS, fits).unwrap_or(1))
    }

    /// Raises the number of one job after the other as far as memory allows.
    fn raise(&self, mut numbers: Vec<usize>) -> Vec<usize> {
        let mut takes = self.all(&numbers);
        for job in (0..numbers.len()).filter(|job| self.fixed[*job].is_none()) {
            let choices = self.choices[job];
            let [least, most] = [numbers[job], choices.most].map(|number| number / choices.unit);
            let cap = largest(least, most, |nth| {
                takes[job] = self.takes(job, nth * choices.unit);
                self.fits(&takes)
            });
            if let Some(cap) = cap {
                numbers[job] = choices.best(cap * choices.unit).max(numbers[job]);
            }
            takes[job] = self.takes(job, numbers[job]);
        }
        numbers
    }

    fn proposal(&self, job: usize, found: &[usize]) -> Proposal {
        let of = &self.planner.jobs[job];
        let why = self.fixed[job].unwrap_or_else(|| self.bound(job, found));
        let proposed_num_envs = self.fixed[job].is_none().then_some(found[job]);
        Proposal {
            job: of.name.clone(),
            num_envs: of.num_envs,
            proposed_num_envs,
            why,
            batch: self.batch(job),
        }
    }

    fn bound(&self, job: usize, found: &[usize]) -> ProposalLimit {
        let choices = self.choices[job];
        let is_all = found[job] + choices.unit > choices.most;
        match choices.episodes {
            _ if !is_all || choices.is_bound_by_memory => ProposalLimit::Memory,
            Some(episodes) if episodes == choices.most || found[job] >= choices.most => {
                ProposalLimit::Episodes
            }
            _ => ProposalLimit::Most,
        }
    }

    /// Returns the rows of one inference with the job's current number of environments.
    fn batch(&self, job: usize) -> Option<BatchRows> {
        let planner = self.planner;
        if planner.ranks[job].is_empty() || !planner.policies[job].depends_on_rows() {
            return None;
        }
        let num_envs = planner.jobs[job].num_envs;
        let own = planner.jobs.iter().map(|job| job.num_envs).enumerate();
        let mut takes: Vec<_> = own
            .map(|(job, envs)| planner.takes(job, envs, None))
            .collect();
        let is_roomy = |need: &Need| {
            let budget = planner.budget(need.gpu);
            budget.is_some() && !need.fit(budget).is_cramped()
        };
        let largest = largest(1, MOST_ROWS, |rows| {
            takes[job] = planner.takes(job, num_envs, Some(rows));
            let is_of_job = |need: &&Need| takes[job].iter().any(|(_, own)| own.gpu == need.gpu);
            planner.sum(&takes).iter().filter(is_of_job).all(is_roomy)
        });
        Some(BatchRows {
            rows: planner.batch(job, num_envs),
            largest,
        })
    }
}

/// Returns the largest number in `from ..= to` for which `holds` is true, by bisection: if it is
/// true for a number, it is true for all smaller ones.
fn largest(from: usize, to: usize, mut holds: impl FnMut(usize) -> bool) -> Option<usize> {
    if from > to || !holds(from) {
        return None;
    }
    let (mut good, mut bad) = (from, to + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle) {
            good = middle
        } else {
            bad = middle
        }
    }
    Some(good)
}

#[cfg(test)]
mod tests;
