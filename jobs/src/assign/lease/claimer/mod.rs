//! Finds the next block of one rank. [`Claimer`] is a state machine that asks for one store
//! operation after the other.
//!
//! Anybody who reaches the store can write to it, so a reply may be any number and any holder.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::assign::lease::claimer::scan::{FoundLease, Scan};
use crate::assign::lease::{Hold, LeaseHolder, LeaseKey, LeaseOp, LeaseReply, SHUT};
use crate::job::JobIndex;

mod scan;

/// A job whose blocks are leased.
#[derive(Clone, Debug)]
pub struct LeasedJob {
    /// Position of the job in the file.
    pub job: JobIndex,
    /// Its blocks, see [`crate::assign::lease::blocks`]; a job that is not split is one block.
    pub blocks: Arc<[Range<u64>]>,
    /// Indices of the blocks whose episodes were already in the journals.
    pub done: BTreeSet<usize>,
    /// Expected seconds for one block.
    pub block_s: f64,
}

/// Which jobs the next block may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Only the job whose environments the rank has loaded.
    Stay,
    /// Any job.
    Any,
}

/// A block that the rank must run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Job of the block.
    pub job: JobIndex,
    /// Index of the block in its job.
    pub block: usize,
    /// Episode numbers of the block.
    pub episodes: Range<u64>,
    /// Another rank may already have run some of the episodes; the journals tell which.
    pub is_taken_over: bool,
}

/// What the caller must do next.
#[derive(Clone, Debug, PartialEq)]
pub enum NextStep {
    /// Run this store operation, and pass its reply to [`Claimer::on`].
    Ask(LeaseOp),
    /// Run this block.
    Run(Claim),
    /// There is nothing to run now; ask again later.
    Nothing,
    /// All blocks of all jobs are done.
    Finished,
}

/// One rank's view of the blocks that are left.
#[derive(Debug)]
pub struct Claimer {
    me: LeaseHolder,
    /// Jobs in descending order of expected time.
    jobs: Vec<JobState>,
    /// Index of the job whose environments the rank has loaded.
    here: Option<usize>,
    /// Ranks that are dead or presumed dead.
    gone: BTreeSet<usize>,
    /// Leases of the ranks in `gone`, as they were when last read.
    watched: BTreeMap<LeaseKey, LeaseHolder>,
    /// This rank's role as scanner, if it has it.
    role: Option<LeaseHolder>,
    /// The scanner as it was when last asked for, and how often it was the same.
    scanner: Option<(LeaseHolder, u32)>,
    /// Whether the rank has looked for its first job.
    has_begun: bool,
    want: Want,
    doing: PendingOp,
}

/// Attempts to begin a job after which a rank asks whether all jobs have been begun.
const BEGINNINGS: u32 = 2;

/// A job and what is known about it. A flag that is set stays set.
#[derive(Debug)]
struct JobState {
    task: LeasedJob,
    /// Some rank has begun the job.
    is_begun: bool,
    /// Every block has been handed out at least once.
    is_exhausted: bool,
    /// All blocks are done, or the job has failed for good.
    is_closed: bool,
}

/// The operation whose reply is awaited; jobs are given by their index in `Claimer::jobs`.
#[derive(Debug)]
enum PendingOp {
    Idle,
    Ticket(usize),
    /// Begins a job after so many attempts that failed.
    Begin(usize, u32),
    /// Asks whether all of these jobs have been begun.
    AllBegun(Vec<usize>),
    /// Reads how many blocks of these jobs were handed out, and how many ranks work on them.
    Work(Vec<usize>),
    /// Claims a block that no rank has had.
    Claim(usize, usize),
    /// Asks for the role of the scanner; holds it afterwards if it is granted.
    Role(LeaseHolder),
    Closed(Vec<usize>, Scan),
    Look(usize, Vec<usize>, Scan),
    Lives(Vec<usize>, usize, usize, Vec<(usize, LeaseHolder)>, Scan),
    /// Takes over a block.
    Take(FoundLease, Scan),
    /// Releases a lease that others may take, now that this rank has a block.
    Release(Claim, Scan),
    HandOver(Claim),
    AllClosed,
}

impl JobState {
    /// Returns the expected seconds of all blocks that are not done.
    fn left_s(&self) -> f64 {
        (self.task.blocks.len() - self.task.done.len()) as f64 * self.task.block_s
    }
}

impl Claimer {
    /// Creates a claimer that knows the tasks but nothing about their leases.
    pub fn new(me: LeaseHolder, tasks: Vec<LeasedJob>) -> Self {
        let seen = |task| JobState {
            task,
            is_begun: false,
            is_exhausted: false,
            is_closed: false,
        };
        let open = tasks
            .into_iter()
            .filter(|task| task.done.len() < task.blocks.len());
        let mut jobs: Vec<_> = open.map(seen).collect();
        jobs.sort_by(|a, b| {
            b.left_s()
                .total_cmp(&a.left_s())
                .then(a.task.job.cmp(&b.task.job))
        });
        Self {
            me,
            jobs,
            here: None,
            gone: BTreeSet::new(),
            watched: BTreeMap::new(),
            role: None,
            scanner: None,
            has_begun: false,
            want: Want::Any,
            doing: PendingOp::Idle,
        }
    }

    /// Starts the search for a block. `gone` are the ranks that will not come back or have not
    /// reported for too long. Two consecutive calls must be further apart than an episode needs
    /// from its mark to the journal.
    pub fn start(&mut self, want: Want, gone: BTreeSet<usize>) -> NextStep {
        (self.want, self.gone) = (want, gone);
        match self.here {
            Some(here) if !self.jobs[here].is_exhausted => self.ask_ticket(here),
            None if !self.has_begun && !self.jobs.is_empty() => self.begin_at_home(),
            _ => self.elsewhere(),
        }
    }

    /// Looks for the first job where no other rank is expected to: the first ranks begin a job each,
    /// and the others are spread over all jobs by their work.
    fn begin_at_home(&mut self) -> NextStep {
        self.has_begun = true;
        match self.jobs.get(self.me.rank) {
            Some(_) => self.ask_begin(self.me.rank, 0),
            None => {
                let home = spread(&self.jobs, self.me.rank);
                self.ask_ticket(home)
            }
        }
    }

    /// Takes the store's reply to the operation that was asked for.
    pub fn on(&mut self, reply: LeaseReply) -> NextStep {
        match (std::mem::replace(&mut self.doing, PendingOp::Idle), reply) {
            (PendingOp::Ticket(job), LeaseReply::Sum(count)) => self.on_ticket(job, count),
            (PendingOp::Begin(job, attempts), LeaseReply::Is(hold)) => {
                self.jobs[job].is_begun = true;
                match hold == Hold::By(self.me) {
                    true => self.ask_ticket(job),
                    false => self.begin(attempts + 1),
                }
            }
            (PendingOp::AllBegun(jobs), LeaseReply::AreThere(are_there)) => {
                let flag = |job: usize| self.jobs[job].is_begun = are_there;
                jobs.into_iter().for_each(flag);
                self.begin(BEGINNINGS + 1)
            }
            (PendingOp::Work(jobs), LeaseReply::Sums(sums)) => self.on_work(&jobs, &sums),
            (PendingOp::Claim(job, block), LeaseReply::Is(hold)) => self.on_claim(job, block, hold),
            (PendingOp::Role(wanted), LeaseReply::Is(hold)) => self.on_role(wanted, hold),
            (PendingOp::Closed(jobs, scan), LeaseReply::Sums(sums)) => {
                for (job, count) in jobs.into_iter().zip(sums) {
                    let seen = &mut self.jobs[job];
                    let is_all = usize::try_from(count) == Ok(seen.task.blocks.len());
                    seen.is_closed = count >= SHUT || is_all;
                }
                self.look(0, 0, scan)
            }
            (PendingOp::Look(job, blocks, scan), LeaseReply::Holds(holds)) => {
                self.on_look(job, &blocks, &holds, scan)
            }
            (PendingOp::Lives(ranks, job, from, held, mut scan), LeaseReply::Sums(lives)) => {
                scan.lives.extend(ranks.into_iter().zip(lives));
                self.judge(job, from, &held, scan)
            }
            (PendingOp::Take(lease, scan), LeaseReply::Is(hold)) => self.on_take(lease, hold, scan),
            (PendingOp::Release(claim, scan), LeaseReply::Is(_)) => {
                self.release_others(claim, scan)
            }
            (PendingOp::HandOver(claim), LeaseReply::Is(_)) => NextStep::Run(claim),
            (PendingOp::AllClosed, LeaseReply::Is(_)) => NextStep::Finished,
            // The reply is of the wrong kind, or none was awaited. The claimer cannot repair the
            // store.
            _ => NextStep::Nothing,
        }
    }

    fn ask(&mut self, doing: PendingOp, op: LeaseOp) -> NextStep {
        self.doing = doing;
        NextStep::Ask(op)
    }

    fn ask_ticket(&mut self, job: usize) -> NextStep {
        let key = LeaseKey::Next(self.jobs[job].task.job);
        self.ask(PendingOp::Ticket(job), LeaseOp::Add(key, 1))
    }

    fn on_ticket(&mut self, job: usize, count: i64) -> NextStep {
        let seen = &mut self.jobs[job];
        let block = usize::try_from(count.saturating_sub(1)).unwrap_or(usize::MAX);
        if block >= seen.task.blocks.len() {
            seen.is_exhausted = true;
            return self.elsewhere();
        }
        if seen.task.done.contains(&block) {
            self.ask_ticket(job)
        } else {
            self.claim(job, block)
        }
    }

    fn claim(&mut self, job: usize, block: usize) -> NextStep {
        let key = LeaseKey::Lease(self.jobs[job].task.job, block);
        let op = LeaseOp::Swap(key, Hold::Free, Hold::By(self.me));
        self.ask(PendingOp::Claim(job, block), op)
    }

    fn on_claim(&mut self, job: usize, block: usize, hold: Hold) -> NextStep {
        if hold == Hold::By(self.me) {
            return NextStep::Run(self.claimed(job, block, false));
        }
        if matches!(hold, Hold::Done(_)) {
            self.jobs[job].task.done.insert(block);
        }
        // Another rank was faster.
        self.ask_ticket(job)
    }

    fn claimed(&mut self, job: usize, block: usize, is_taken_over: bool) -> Claim {
        self.here = Some(job);
        let task = &self.jobs[job].task;
        Claim {
            job: task.job,
            block,
            episodes: task.blocks[block].clone(),
            is_taken_over,
        }
    }

    /// The loaded job has no block left to hand out.
    fn elsewhere(&mut self) -> NextStep {
        if self.want == Want::Stay {
            NextStep::Nothing
        } else {
            self.begin(0)
        }
    }

    /// Begins the first job that no rank has begun, after so many attempts.
    fn begin(&mut self, attempts: u32) -> NextStep {
        let left = (0..self.jobs.len()).filter(|job| !self.jobs[*job].is_begun);
        let left: Vec<_> = left.collect();
        match left.first() {
            None => self.look_for_help(),
            Some(_) if attempts == BEGINNINGS => {
                let key = |job: &usize| LeaseKey::Begun(self.jobs[*job].task.job);
                let keys = left.iter().map(key).collect();
                self.ask(PendingOp::AllBegun(left), LeaseOp::AreThere(keys))
            }
            Some(job) => self.ask_begin(*job, attempts),
        }
    }

    fn ask_begin(&mut self, job: usize, attempts: u32) -> NextStep {
        let key = LeaseKey::Begun(self.jobs[job].task.job);
        let op = LeaseOp::Swap(key, Hold::Free, Hold::By(self.me));
        self.ask(PendingOp::Begin(job, attempts), op)
    }

    /// Finds the job where help is most useful.
    fn look_for_help(&mut self) -> NextStep {
        let open = (0..self.jobs.len()).filter(|job| !self.jobs[*job].is_exhausted);
        let open: Vec<_> = open.collect();
        if open.is_empty() {
            return self.ask_role(Hold::Free);
        }
        let keys = |job: &usize| {
            let job = self.jobs[*job].task.job;
            [LeaseKey::Next(job), LeaseKey::Helpers(job)]
        };
        let keys = open.iter().flat_map(keys).collect();
        self.ask(PendingOp::Work(open), LeaseOp::Sums(keys))
    }

    /// Goes to the job with the most seconds of work left for each rank that is on it, the asking
    /// rank included.
    fn on_work(&mut self, jobs: &[usize], sums: &[i64]) -> NextStep {
        let mut best: Option<(usize, f64)> = None;
        for (job, sums) in jobs.iter().zip(sums.chunks_exact(2)) {
            let seen = &mut self.jobs[*job];
            let left = (seen.task.blocks.len() as i64).saturating_sub(sums[0]);
            seen.is_exhausted = left <= 0;
            let ranks = sums[1].max(0).saturating_add(1);
            let each_s = left as f64 * seen.task.block_s / ranks as f64;
            if left > 0 && best.is_none_or(|(_, most)| each_s > most) {
                best = Some((*job, each_s));
            }
        }
        match best {
            Some((job, _)) => self.ask_ticket(job),
            None => self.ask_role(Hold::Free),
        }
    }
}

/// Returns the job of a rank if many ranks are spread over all jobs by their work.
fn spread(jobs: &[JobState], rank: usize) -> usize {
    /// Multiples of the golden ratio, modulo 1, are spread evenly however many there are.
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let all_s: f64 = jobs.iter().map(JobState::left_s).sum();
    let mut rest_s = (rank as f64 * GOLDEN).fract() * all_s;
    let is_here = |seen: &JobState| {
        rest_s -= seen.left_s();
        rest_s < 0.0
    };
    jobs.iter().position(is_here).unwrap_or(0)
}
