//! Finds the next block of one rank. [`Claimer`] is a state machine that asks for one store
//! operation after the other.
//!
//! Anybody who reaches the store can write to it, so a reply may be any number and any holder.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::assign::lease::{Hold, LeaseHolder, LeaseKey, LeaseOp, LeaseReply, SHUT};
use crate::job::JobIndex;

/// A job whose blocks are leased.
#[derive(Clone, Debug)]
pub struct LeasedJob {
    /// Position of the job in the file.
    pub job: JobIndex,
    /// Its blocks, see [`crate::assign::lease::blocks`]; a job that is not split is one block.
    pub blocks: Vec<Range<u64>>,
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
    want: Want,
    doing: PendingOp,
}

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
    Begin(usize),
    /// Reads how many blocks of a job were handed out.
    Left(usize, Option<Best>),
    /// Reads how many ranks work on a job that has this many seconds of work left.
    Helpers(usize, f64, Option<Best>),
    /// Claims a block; the flag says that another rank may have had it before.
    Claim(usize, usize, bool),
    Closed(usize, Lives),
    Look(usize, usize, Lives),
    Life(usize, usize, LeaseHolder, Lives),
}

/// A job and the seconds of work left for each rank that is on it, the asking rank included.
#[derive(Clone, Copy, Debug)]
struct Best(usize, f64);

/// How often ranks were started, as far as this pass has looked it up.
type Lives = BTreeMap<usize, i64>;

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
        let left_s = |seen: &JobState| {
            (seen.task.blocks.len() - seen.task.done.len()) as f64 * seen.task.block_s
        };
        jobs.sort_by(|a, b| {
            left_s(b)
                .total_cmp(&left_s(a))
                .then(a.task.job.cmp(&b.task.job))
        });
        Self {
            me,
            jobs,
            here: None,
            gone: BTreeSet::new(),
            watched: BTreeMap::new(),
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
            _ => self.elsewhere(),
        }
    }

    /// Takes the store's reply to the operation that was asked for.
    pub fn on(&mut self, reply: LeaseReply) -> NextStep {
        match (std::mem::replace(&mut self.doing, PendingOp::Idle), reply) {
            (PendingOp::Ticket(job), LeaseReply::Sum(count)) => self.on_ticket(job, count),
            (PendingOp::Begin(job), LeaseReply::Is(hold)) => {
                self.jobs[job].is_begun = true;
                if hold == Hold::By(self.me) {
                    self.ask_ticket(job)
                } else {
                    self.begin()
                }
            }
            (PendingOp::Left(job, best), LeaseReply::Sum(count)) => self.on_left(job, count, best),
            (PendingOp::Helpers(job, left_s, best), LeaseReply::Sum(helpers)) => {
                let each_s = left_s / helpers.max(0).saturating_add(1) as f64;
                let best = best
                    .filter(|Best(_, most)| *most >= each_s)
                    .unwrap_or(Best(job, each_s));
                self.look_for_help(job + 1, Some(best))
            }
            (PendingOp::Claim(job, block, is_taken_over), LeaseReply::Is(hold)) => {
                self.on_claim(job, block, is_taken_over, hold)
            }
            (PendingOp::Closed(job, lives), LeaseReply::Sum(count)) => {
                let seen = &mut self.jobs[job];
                seen.is_closed = count >= SHUT || count as usize == seen.task.blocks.len();
                if seen.is_closed {
                    self.scan(job + 1, lives)
                } else {
                    self.look(job, 0, lives)
                }
            }
            (PendingOp::Look(job, block, lives), LeaseReply::Is(hold)) => {
                self.on_look(job, block, hold, lives)
            }
            (PendingOp::Life(job, block, holder, mut lives), LeaseReply::Sum(life)) => {
                lives.insert(holder.rank, life);
                self.judge(job, block, holder, lives)
            }
            // The reply is of the wrong kind, or none was awaited. The claimer cannot repair the
            // store.
            (_, LeaseReply::Sum(_) | LeaseReply::Is(_)) => NextStep::Nothing,
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
            self.claim(job, block, Hold::Free, false)
        }
    }

    fn claim(&mut self, job: usize, block: usize, from: Hold, is_taken_over: bool) -> NextStep {
        let key = LeaseKey::Lease(self.jobs[job].task.job, block);
        self.ask(
            PendingOp::Claim(job, block, is_taken_over),
            LeaseOp::Swap(key, from, Hold::By(self.me)),
        )
    }

    fn on_claim(&mut self, job: usize, block: usize, is_taken_over: bool, hold: Hold) -> NextStep {
        let seen = &mut self.jobs[job];
        if hold == Hold::By(self.me) {
            self.here = Some(job);
            let (job, episodes) = (seen.task.job, seen.task.blocks[block].clone());
            return NextStep::Run(Claim {
                job,
                block,
                episodes,
                is_taken_over,
            });
        }
        if matches!(hold, Hold::Done(_)) {
            seen.task.done.insert(block);
        }
        // Another rank was faster.
        if is_taken_over {
            self.look(job, block + 1, Lives::new())
        } else {
            self.ask_ticket(job)
        }
    }

    /// The loaded job has no block left to hand out.
    fn elsewhere(&mut self) -> NextStep {
        if self.want == Want::Stay {
            NextStep::Nothing
        } else {
            self.begin()
        }
    }

    fn begin(&mut self) -> NextStep {
        match self.jobs.iter().position(|seen| !seen.is_begun) {
            Some(job) => {
                let key = LeaseKey::Begun(self.jobs[job].task.job);
                self.ask(
                    PendingOp::Begin(job),
                    LeaseOp::Swap(key, Hold::Free, Hold::By(self.me)),
                )
            }
            None => self.look_for_help(0, None),
        }
    }

    /// Finds the job where help is most useful, among those from index `from` on and the best one
    /// before.
    fn look_for_help(&mut self, from: usize, best: Option<Best>) -> NextStep {
        let next = (from..self.jobs.len()).find(|job| !self.jobs[*job].is_exhausted);
        match (next, best) {
            (Some(job), _) => {
                let key = LeaseKey::Next(self.jobs[job].task.job);
                self.ask(PendingOp::Left(job, best), LeaseOp::Add(key, 0))
            }
            (None, Some(Best(job, _))) => self.ask_ticket(job),
            (None, None) => self.scan(0, Lives::new()),
        }
    }

    fn on_left(&mut self, job: usize, count: i64, best: Option<Best>) -> NextStep {
        let seen = &mut self.jobs[job];
        let left = (seen.task.blocks.len() as i64).saturating_sub(count);
        if left <= 0 {
            seen.is_exhausted = true;
            return self.look_for_help(job + 1, best);
        }
        let (key, left_s) = (
            LeaseKey::Helpers(seen.task.job),
            left as f64 * seen.task.block_s,
        );
        self.ask(PendingOp::Helpers(job, left_s, best), LeaseOp::Add(key, 0))
    }

    /// Searches the jobs from index `from` on for leases that no living rank holds.
    fn scan(&mut self, from: usize, lives: Lives) -> NextStep {
        match (from..self.jobs.len()).find(|job| !self.jobs[*job].is_closed) {
            Some(job) => {
                let key = LeaseKey::Closed(self.jobs[job].task.job);
                self.ask(PendingOp::Closed(job, lives), LeaseOp::Add(key, 0))
            }
            None if self.jobs.iter().all(|seen| seen.is_closed) => NextStep::Finished,
            None => NextStep::Nothing,
        }
    }

    fn look(&mut self, job: usize, from: usize, lives: Lives) -> NextStep {
        let LeasedJob {
            job: index,
            blocks,
            done,
            ..
        } = &self.jobs[job].task;
        match (from..blocks.len()).find(|block| !done.contains(block)) {
            Some(block) => {
                let key = LeaseKey::Lease(*index, block);
                self.ask(PendingOp::Look(job, block, lives), LeaseOp::Read(key))
            }
            None => {
                self.jobs[job].is_closed = done.len() == blocks.len();
                self.scan(job + 1, lives)
            }
        }
    }

    fn on_look(&mut self, job: usize, block: usize, hold: Hold, lives: Lives) -> NextStep {
        match hold {
            Hold::Done(_) => {
                self.jobs[job].task.done.insert(block);
                self.look(job, block + 1, lives)
            }
            Hold::Free => self.claim(job, block, hold, true),
            Hold::By(holder) => self.judge(job, block, holder, lives),
        }
    }

    /// Decides about a lease that has a holder. A dead rank's lease is taken over. The lease of a
    /// rank that may come back is taken over if it has not changed since it was last read. If the
    /// rank holds the lease itself although it has no work, it was restarted, and runs the block
    /// again.
    fn judge(&mut self, job: usize, block: usize, holder: LeaseHolder, lives: Lives) -> NextStep {
        let is_own = holder.rank == self.me.rank && holder.life <= self.me.life;
        let is_dead = is_own
            || lives
                .get(&holder.rank)
                .is_some_and(|life| *life > holder.life);
        let key = LeaseKey::Lease(self.jobs[job].task.job, block);
        if is_dead {
            return self.claim(job, block, Hold::By(holder), true);
        }
        if self.gone.contains(&holder.rank) {
            return match self.watched.insert(key, holder) == Some(holder) {
                true => self.claim(job, block, Hold::By(holder), true),
                false => self.look(job, block + 1, lives),
            };
        }
        self.watched.remove(&key);
        match lives.contains_key(&holder.rank) {
            true => self.look(job, block + 1, lives),
            false => self.ask(
                PendingOp::Life(job, block, holder, lives),
                LeaseOp::Add(LeaseKey::Life(holder.rank), 0),
            ),
        }
    }
}
