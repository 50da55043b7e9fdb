//! The leases of a rank: which blocks of episodes it runs, and how they are marked as written.
//!
//! ```text
//! queue ────── claim any ──► Leases ──► store (jobs::assign::lease)
//!   │ a job                 ▲ ▲
//!   ▼                       │ └── journal: may it be written? ─► it is written ─► block done
//! rollout ── the next ──────┘
//! ```
//! The rank's loop waits for the store, a fraction of a millisecond for each block. If the store
//! does not answer within a time limit, the rank gets an error instead of hanging.

mod expected;
mod store;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use jobs::assign::Work;
use jobs::assign::lease::{
    self, Claim, Claimer, Hold, LeaseHolder, LeaseKey, LeaseOp, LeaseReply, LeasedJob, NextStep,
    Want,
};
use jobs::job::{JobIndex, Length};
use tcpstore::StoreAddr;

use crate::eval::Stop;
use crate::eval::lease::store::LeaseStore;
pub use expected::BlockCut;

/// The leases of a rank.
pub struct Leases {
    store: LeaseStore,
    claimer: Claimer,
    me: LeaseHolder,
    /// Blocks that this rank holds and that are not done.
    open: BTreeMap<(JobIndex, usize), OpenBlock>,
    visit: Option<Visit>,
    /// The error of the store for which [`Leases::next_episode`] has returned nothing.
    error: Option<Stop>,
}

/// A block that this rank holds.
struct OpenBlock {
    holder: LeaseHolder,
    episodes: Range<u64>,
    /// Episodes that no journal has; `None` if the whole job is one lease, where nothing is
    /// counted.
    left: Option<BTreeSet<u64>>,
}

/// A job for which the rank has environments.
struct Visit {
    work: Work,
    /// Episodes of each build of the environments; empty if the whole job is one lease.
    builds: Vec<Range<u64>>,
    /// Index of the current build.
    build: usize,
    /// Finished episodes according to the journals.
    done: Vec<u64>,
    /// Episodes that have to run alone.
    suspects: BTreeSet<u64>,
    /// Episodes that any free environment may run.
    queue: VecDeque<u64>,
    apart: Vec<u64>,
    /// Blocks of other builds.
    later: Vec<usize>,
    /// True if no block of the job is left.
    is_over: bool,
}

impl Leases {
    /// Connects to the store and counts this life of the rank (its first start or a restart).
    /// `prefix` is that of every key: launch, round and stage.
    ///
    /// # Errors
    /// Fails if the store cannot be reached.
    pub fn start(
        addr: StoreAddr,
        prefix: String,
        rank: usize,
        tasks: Vec<LeasedJob>,
    ) -> Result<Self, Stop> {
        let mut store = LeaseStore::connect(addr, prefix)?;
        let life = match store.ask(&LeaseOp::Add(LeaseKey::Life(rank), 1))? {
            LeaseReply::Sum(life) => life,
            _ => 0,
        };
        let me = LeaseHolder {
            rank,
            life,
            mark: 0,
        };
        Ok(Self {
            store,
            claimer: Claimer::new(me, tasks),
            me,
            open: BTreeMap::new(),
            visit: None,
            error: None,
        })
    }

    /// Claims a block of any job, or returns why there is none.
    ///
    /// # Errors
    /// Fails if the store does not answer.
    pub fn claim(&mut self, gone: BTreeSet<usize>) -> Result<NextStep, Stop> {
        self.want(Want::Any, gone)
    }

    /// Claims the next block; see [`Claimer::start`].
    fn want(&mut self, want: Want, gone: BTreeSet<usize>) -> Result<NextStep, Stop> {
        let mut answer = self.claimer.start(want, gone);
        while let NextStep::Ask(op) = answer {
            answer = self.claimer.on(self.store.ask(&op)?);
        }
        Ok(answer)
    }

    /// Records a claimed block of `work`, whose episodes `done` are already in the journals.
    /// Returns false if nothing is left to run.
    pub fn hold(&mut self, claim: &Claim, work: &Work, is_in_blocks: bool, done: &[u64]) -> bool {
        let is_left = |episode: &u64| work.runs(*episode) && done.binary_search(episode).is_err();
        let left = || claim.episodes.clone().filter(is_left).collect();
        let left: Option<BTreeSet<u64>> = is_in_blocks.then(left);
        let is_empty = left.as_ref().is_some_and(BTreeSet::is_empty);
        let open = OpenBlock {
            holder: self.me,
            episodes: claim.episodes.clone(),
            left,
        };
        self.open.insert((claim.job, claim.block), open);
        if is_empty {
            self.close(claim.job, claim.block);
        }
        !is_empty
    }

    /// Records that the rank has environments for `work`, whose episodes `done` are already in the
    /// journals. The rest of the blocks that the rank holds runs first. `suspects` are the episodes
    /// that have to run alone.
    pub fn visit(&mut self, work: &Work, done: Vec<u64>, suspects: BTreeSet<u64>) {
        let job = work.job.index;
        self.helps(job, 1);
        let held = || self.open.iter().filter(|((of, _), _)| *of == job);
        let is_in_blocks = held().any(|(_, open)| open.left.is_some());
        self.visit = Some(Visit {
            work: work.clone(),
            builds: match work.job.length {
                Length::Episodes(count) if is_in_blocks => work.job.rebuilds(count),
                _ => Vec::new(),
            },
            build: 0,
            done,
            suspects,
            queue: VecDeque::new(),
            apart: Vec::new(),
            later: held().map(|((_, block), _)| *block).collect(),
            is_over: false,
        });
    }

    /// Reports that the rank begins (1) or leaves (-1) a job.
    fn helps(&mut self, job: JobIndex, delta: i64) {
        self.store
            .tell(&LeaseOp::Add(LeaseKey::Helpers(job), delta));
    }

    /// Returns the number of the next build of the environments that has work.
    pub fn next_build(&mut self) -> Option<u64> {
        let visit = self.visit.as_mut()?;
        let job = visit.work.job.index;
        let build_of = |block: &usize| {
            let first = self.open.get(&(job, *block))?.episodes.start;
            visit.builds.iter().position(|build| build.contains(&first))
        };
        let next = visit.later.iter().find_map(build_of)?;
        let is_now = |block: &usize| build_of(block) == Some(next);
        let (now, later): (Vec<_>, _) = visit.later.iter().partition(|block| is_now(block));
        (visit.build, visit.later) = (next, later);
        for block in now {
            visit.enqueue(&self.open[&(job, block)]);
        }
        Some(next as u64)
    }

    /// Returns the next episode of the current build for any free environment. It is claimed from
    /// the store if the rank holds no more leases. At the end, call [`Leases::check`] to see
    /// whether an error has ended them.
    pub fn next_episode(&mut self) -> Option<u64> {
        loop {
            let visit = self.visit.as_mut()?;
            if let Some(episode) = visit.queue.pop_front() {
                return Some(episode);
            }
            // A block of another build ends the current build.
            if visit.is_over || !visit.later.is_empty() || self.error.is_some() {
                return None;
            }
            match self.want(Want::Stay, BTreeSet::new()) {
                Ok(NextStep::Run(claim)) => self.take(&claim)?,
                Ok(_) => self.visit.as_mut()?.is_over = true,
                Err(err) => self.error = Some(err),
            }
        }
    }

    /// Adds a claimed block to the current job.
    fn take(&mut self, claim: &Claim) -> Option<()> {
        let visit = self.visit.take()?;
        let is_left = self.hold(claim, &visit.work, true, &visit.done);
        let visit = self.visit.insert(visit);
        if is_left {
            let block = &self.open[&(claim.job, claim.block)];
            let build = visit.builds.get(visit.build);
            match build.is_some_and(|build| build.contains(&block.episodes.start)) {
                true => visit.enqueue(block),
                false => visit.later.push(claim.block),
            }
        }
        Some(())
    }

    /// Returns the episodes of the current build that have to run alone.
    pub fn apart(&mut self) -> Vec<u64> {
        let visit = self.visit.as_mut();
        visit.map_or_else(Vec::new, |visit| std::mem::take(&mut visit.apart))
    }

    /// Checks that the store has answered all claims of [`Leases::next_episode`].
    ///
    /// # Errors
    /// Returns the error of a claim that failed.
    pub fn check(&mut self) -> Result<(), Stop> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Marks the lease of an episode before it is written to the journal; returns false if another
    /// rank has taken it over, so that no more of its block is started.
    ///
    /// # Errors
    /// Fails if the store does not answer.
    pub fn may_write(&mut self, job: JobIndex, episode: u64) -> Result<bool, Stop> {
        let visit = self.visit.as_ref();
        let Some((block, open)) = block(&mut self.open, job, episode) else {
            // In a leased job, an episode without a lease belongs to another rank.
            return Ok(visit.is_none_or(|visit| visit.work.job.index != job));
        };
        let (op, marked) = lease::mark(open.holder, job, block);
        if self.store.ask(&op)? == LeaseReply::Is(Hold::By(marked)) {
            open.holder = marked;
            return Ok(true);
        }
        let lost = open.episodes.clone();
        self.open.remove(&(job, block));
        if let Some(visit) = &mut self.visit {
            visit.queue.retain(|episode| !lost.contains(episode));
            visit.apart.retain(|episode| !lost.contains(episode));
            visit.later.retain(|other| *other != block);
        }
        Ok(false)
    }

    /// Records that an episode is in the journal.
    pub fn written(&mut self, job: JobIndex, episode: u64) {
        if let Some((block, open)) = block(&mut self.open, job, episode)
            && let Some(left) = &mut open.left
        {
            left.remove(&episode);
            if left.is_empty() {
                self.close(job, block);
            }
        }
    }

    /// Reports that all episodes of a block are written.
    fn close(&mut self, job: JobIndex, block: usize) {
        if let Some(OpenBlock { holder, .. }) = self.open.remove(&(job, block)) {
            let [lease, closed] = lease::done(holder, job, block);
            if self.store.tell(&lease) == Some(LeaseReply::Is(Hold::Done(holder))) {
                self.store.tell(&closed);
            }
        }
    }

    /// Ends the visit of a job: its environments are closed. `is_done` says that the job ran to its
    /// end.
    pub fn leave(&mut self, job: JobIndex, is_done: bool) {
        self.helps(job, -1);
        self.visit = None;
        let is_whole = |block: &usize| self.open[&(job, *block)].left.is_none();
        let held = self.open.keys().filter(|(of, _)| *of == job);
        let whole: Vec<_> = held.map(|(_, block)| *block).filter(is_whole).collect();
        if is_done {
            whole.into_iter().for_each(|block| self.close(job, block));
        }
    }

    /// Gives up a job if blocks of it are still held: it did not run to its end and will not, so no
    /// rank is to run it.
    pub fn give_up(&mut self, job: JobIndex) {
        let is_held = self.open.keys().any(|(of, _)| *of == job);
        if is_held {
            self.open.retain(|(of, _), _| *of != job);
            for op in lease::shut(job) {
                self.store.tell(&op);
            }
        }
    }

    /// Returns whether the current job is leased in blocks.
    pub fn is_in_blocks(&self) -> bool {
        let visit = self.visit.as_ref();
        visit.is_some_and(|visit| !visit.builds.is_empty())
    }

    /// Returns the number of episodes left in the leases that this rank holds.
    pub fn held(&self) -> u64 {
        let left = self.open.values().flat_map(|open| &open.left);
        left.map(|left| left.len() as u64).sum()
    }
}

/// Returns the block that has an episode.
fn block(
    open: &mut BTreeMap<(JobIndex, usize), OpenBlock>,
    job: JobIndex,
    episode: u64,
) -> Option<(usize, &mut OpenBlock)> {
    let of_job = open.range_mut((job, 0)..=(job, usize::MAX));
    of_job
        .map(|((_, block), open)| (*block, open))
        .find(|(_, open)| open.episodes.contains(&episode))
}

impl Visit {
    fn enqueue(&mut self, open: &OpenBlock) {
        for episode in open.left.iter().flatten().copied() {
            match self.suspects.contains(&episode) {
                true => self.apart.push(episode),
                false => self.queue.push_back(episode),
            }
        }
    }
}
