//! How one rank comes by its next block: a state machine that asks for one operation of the store after the other.
//!
//! Anybody who reaches the store can write into it, so that a reply may be any number and any holder.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::assign::lease::{Hold, Holder, Key, Op, Reply, SHUT};
use crate::job::JobIndex;

/// A job of which blocks are leased.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which.
    pub job: JobIndex,
    /// What is leased of it, see [`super::blocks`]; a job that stays whole is one block.
    pub blocks: Vec<Range<u64>>,
    /// Blocks of which the journals had everything before.
    pub done: BTreeSet<usize>,
    /// Seconds that a block is expected to take.
    pub block_s: f64,
}

/// Where the next block may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The job whose environments the rank has.
    Stay,
    /// Any job.
    Any,
}

/// A block that the rank has to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Of this job.
    pub job: JobIndex,
    /// Which of its blocks.
    pub block: usize,
    /// The episodes from the first to the last.
    pub episodes: Range<u64>,
    /// Somebody may have run some of them: the journals know.
    pub is_taken_over: bool,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Give [`Claimer::on`] the reply to this.
    Ask(Op),
    /// Run this.
    Run(Claim),
    /// There is nothing to run now; later perhaps.
    Nothing,
    /// Everything is done.
    Finished,
}

/// One rank's view of what is left.
#[derive(Debug)]
pub struct Claimer {
    me: Holder,
    /// Longest expected first.
    jobs: Vec<Seen>,
    /// Position of the job whose environments the rank has.
    here: Option<usize>,
    /// Ranks that are dead, or as good as that.
    gone: BTreeSet<usize>,
    /// Leases of such ranks, as they were when they were looked at last.
    watched: BTreeMap<Key, Holder>,
    want: Want,
    doing: Doing,
}

/// A job, and what is known of it. What is known does not change any more.
#[derive(Debug)]
struct Seen {
    task: Task,
    /// Somebody has begun it.
    is_begun: bool,
    /// No block is left that nobody has had.
    is_exhausted: bool,
    /// All its blocks are done, or it has failed for good.
    is_closed: bool,
}

/// What the reply that is waited for is about; jobs by their position.
#[derive(Debug)]
enum Doing {
    Idle,
    Ticket(usize),
    Begin(usize),
    /// Blocks handed out of a job.
    Left(usize, Option<Best>),
    /// Ranks that are on a job with so much left, in seconds.
    Helpers(usize, f64, Option<Best>),
    /// A block, which somebody may have had.
    Claim(usize, usize, bool),
    Closed(usize, Lives),
    Look(usize, usize, Lives),
    Life(usize, usize, Holder, Lives),
}

/// A job and the work left for each rank that is on it, the asking one included.
#[derive(Clone, Copy, Debug)]
struct Best(usize, f64);

/// How often ranks were started, as far as it was looked up in this pass.
type Lives = BTreeMap<usize, i64>;

impl Claimer {
    /// Nothing is known but the tasks.
    pub fn new(me: Holder, tasks: Vec<Task>) -> Self {
        let seen = |task| Seen { task, is_begun: false, is_exhausted: false, is_closed: false };
        let open = tasks.into_iter().filter(|task| task.done.len() < task.blocks.len());
        let mut jobs: Vec<_> = open.map(seen).collect();
        let left_s = |seen: &Seen| (seen.task.blocks.len() - seen.task.done.len()) as f64 * seen.task.block_s;
        jobs.sort_by(|a, b| left_s(b).total_cmp(&left_s(a)).then(a.task.job.cmp(&b.task.job)));
        Self {
            me,
            jobs,
            here: None,
            gone: BTreeSet::new(),
            watched: BTreeMap::new(),
            want: Want::Any,
            doing: Doing::Idle,
        }
    }

    /// The rank wants a block; `gone` are the ranks that will not come back, or have been still for too long. Between two
    /// calls with nothing in between goes more time than an episode needs from its mark to the journal.
    pub fn start(&mut self, want: Want, gone: BTreeSet<usize>) -> Answer {
        (self.want, self.gone) = (want, gone);
        match self.here {
            Some(here) if !self.jobs[here].is_exhausted => self.ask_ticket(here),
            _ => self.elsewhere(),
        }
    }

    /// The store's reply to what was asked for.
    pub fn on(&mut self, reply: Reply) -> Answer {
        match (std::mem::replace(&mut self.doing, Doing::Idle), reply) {
            (Doing::Ticket(job), Reply::Sum(count)) => self.on_ticket(job, count),
            (Doing::Begin(job), Reply::Is(hold)) => {
                self.jobs[job].is_begun = true;
                if hold == Hold::By(self.me) { self.ask_ticket(job) } else { self.begin() }
            }
            (Doing::Left(job, best), Reply::Sum(count)) => self.on_left(job, count, best),
            (Doing::Helpers(job, left_s, best), Reply::Sum(helpers)) => {
                let each_s = left_s / helpers.max(0).saturating_add(1) as f64;
                let best = best.filter(|Best(_, most)| *most >= each_s).unwrap_or(Best(job, each_s));
                self.look_for_help(job + 1, Some(best))
            }
            (Doing::Claim(job, block, is_taken_over), Reply::Is(hold)) => {
                self.on_claim(job, block, is_taken_over, hold)
            }
            (Doing::Closed(job, lives), Reply::Sum(count)) => {
                let seen = &mut self.jobs[job];
                seen.is_closed = count >= SHUT || count as usize == seen.task.blocks.len();
                if seen.is_closed { self.scan(job + 1, lives) } else { self.look(job, 0, lives) }
            }
            (Doing::Look(job, block, lives), Reply::Is(hold)) => self.on_look(job, block, hold, lives),
            (Doing::Life(job, block, holder, mut lives), Reply::Sum(life)) => {
                lives.insert(holder.rank, life);
                self.judge(job, block, holder, lives)
            }
            // A reply of another kind than was asked for, or to nothing: the store is not ours to mend.
            (_, Reply::Sum(_) | Reply::Is(_)) => Answer::Nothing,
        }
    }

    fn ask(&mut self, doing: Doing, op: Op) -> Answer {
        self.doing = doing;
        Answer::Ask(op)
    }

    fn ask_ticket(&mut self, job: usize) -> Answer {
        let key = Key::Next(self.jobs[job].task.job);
        self.ask(Doing::Ticket(job), Op::Add(key, 1))
    }

    fn on_ticket(&mut self, job: usize, count: i64) -> Answer {
        let seen = &mut self.jobs[job];
        let block = usize::try_from(count.saturating_sub(1)).unwrap_or(usize::MAX);
        if block >= seen.task.blocks.len() {
            seen.is_exhausted = true;
            return self.elsewhere();
        }
        if seen.task.done.contains(&block) { self.ask_ticket(job) } else { self.claim(job, block, Hold::Free, false) }
    }

    fn claim(&mut self, job: usize, block: usize, from: Hold, is_taken_over: bool) -> Answer {
        let key = Key::Lease(self.jobs[job].task.job, block);
        self.ask(Doing::Claim(job, block, is_taken_over), Op::Swap(key, from, Hold::By(self.me)))
    }

    fn on_claim(&mut self, job: usize, block: usize, is_taken_over: bool, hold: Hold) -> Answer {
        let seen = &mut self.jobs[job];
        if hold == Hold::By(self.me) {
            self.here = Some(job);
            let (job, episodes) = (seen.task.job, seen.task.blocks[block].clone());
            return Answer::Run(Claim { job, block, episodes, is_taken_over });
        }
        if hold == Hold::Done {
            seen.task.done.insert(block);
        }
        // Somebody was faster.
        if is_taken_over { self.look(job, block + 1, Lives::new()) } else { self.ask_ticket(job) }
    }

    /// The job that the rank has is of no more use.
    fn elsewhere(&mut self) -> Answer {
        if self.want == Want::Stay { Answer::Nothing } else { self.begin() }
    }

    fn begin(&mut self) -> Answer {
        match self.jobs.iter().position(|seen| !seen.is_begun) {
            Some(job) => {
                let key = Key::Begun(self.jobs[job].task.job);
                self.ask(Doing::Begin(job), Op::Swap(key, Hold::Free, Hold::By(self.me)))
            }
            None => self.look_for_help(0, None),
        }
    }

    /// Of the jobs from `from` on, and the best before them, the one where help is of most use.
    fn look_for_help(&mut self, from: usize, best: Option<Best>) -> Answer {
        let next = (from..self.jobs.len()).find(|job| !self.jobs[*job].is_exhausted);
        match (next, best) {
            (Some(job), _) => {
                let key = Key::Next(self.jobs[job].task.job);
                self.ask(Doing::Left(job, best), Op::Add(key, 0))
            }
            (None, Some(Best(job, _))) => self.ask_ticket(job),
            (None, None) => self.scan(0, Lives::new()),
        }
    }

    fn on_left(&mut self, job: usize, count: i64, best: Option<Best>) -> Answer {
        let seen = &mut self.jobs[job];
        let left = (seen.task.blocks.len() as i64).saturating_sub(count);
        if left <= 0 {
            seen.is_exhausted = true;
            return self.look_for_help(job + 1, best);
        }
        let (key, left_s) = (Key::Helpers(seen.task.job), left as f64 * seen.task.block_s);
        self.ask(Doing::Helpers(job, left_s, best), Op::Add(key, 0))
    }

    /// Looks for leases that nobody living has, in the jobs from `from` on.
    fn scan(&mut self, from: usize, lives: Lives) -> Answer {
        match (from..self.jobs.len()).find(|job| !self.jobs[*job].is_closed) {
            Some(job) => {
                let key = Key::Closed(self.jobs[job].task.job);
                self.ask(Doing::Closed(job, lives), Op::Add(key, 0))
            }
            None if self.jobs.iter().all(|seen| seen.is_closed) => Answer::Finished,
            None => Answer::Nothing,
        }
    }

    fn look(&mut self, job: usize, from: usize, lives: Lives) -> Answer {
        let Task { job: index, blocks, done, .. } = &self.jobs[job].task;
        match (from..blocks.len()).find(|block| !done.contains(block)) {
            Some(block) => {
                let key = Key::Lease(*index, block);
                self.ask(Doing::Look(job, block, lives), Op::Read(key))
            }
            None => {
                self.jobs[job].is_closed = done.len() == blocks.len();
                self.scan(job + 1, lives)
            }
        }
    }

    fn on_look(&mut self, job: usize, block: usize, hold: Hold, lives: Lives) -> Answer {
        match hold {
            Hold::Done => {
                self.jobs[job].task.done.insert(block);
                self.look(job, block + 1, lives)
            }
            Hold::Free => self.claim(job, block, hold, true),
            Hold::By(holder) => self.judge(job, block, holder, lives),
        }
    }

    /// A lease of the dead is taken over, one of a rank that may come back if it is as it was before. A rank without work
    /// that holds one has forgotten it, and runs it.
    fn judge(&mut self, job: usize, block: usize, holder: Holder, lives: Lives) -> Answer {
        let is_own = holder.rank == self.me.rank && holder.life <= self.me.life;
        let is_dead = is_own || lives.get(&holder.rank).is_some_and(|life| *life > holder.life);
        let key = Key::Lease(self.jobs[job].task.job, block);
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
            false => self.ask(Doing::Life(job, block, holder, lives), Op::Add(Key::Life(holder.rank), 0)),
        }
    }
}
