//! The set of leases that a rank holds: which episodes are still to be run, and which are written.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use jobs::assign::Work;
use jobs::assign::lease::{Claim, LeaseHolder, NextStep, Want};
use jobs::job::{JobIndex, Length};

use crate::eval::lease::{Claims, LeaseError};

/// The leases of a rank.
pub struct Leases {
    claims: Claims,
    me: LeaseHolder,
    /// Blocks that this rank holds and that are not done.
    open: BTreeMap<(JobIndex, usize), OpenBlock>,
    visit: Option<Visit>,
    /// The error of the store for which [`Leases::next`] has returned nothing.
    error: Option<LeaseError>,
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
    later: VecDeque<usize>,
    /// True if no block of the job is left.
    is_over: bool,
}

impl Leases {
    /// Creates an empty set of leases.
    pub fn new(claims: Claims, me: LeaseHolder) -> Self {
        Self {
            claims,
            me,
            open: BTreeMap::new(),
            visit: None,
            error: None,
        }
    }

    /// Claims a block of any job, or returns why there is none.
    ///
    /// # Errors
    /// Returns a [`LeaseError`] if the store does not answer.
    pub fn claim(&mut self, gone: BTreeSet<usize>) -> Result<NextStep, LeaseError> {
        self.claims.claim(Want::Any, gone)
    }

    /// Records a claimed block of `work`, whose episodes `done` are already in the journals.
    /// Returns false if nothing is left to run.
    pub fn hold(&mut self, claim: &Claim, work: &Work, is_in_blocks: bool, done: &[u64]) -> bool {
        let left = is_in_blocks.then(|| left(claim, work, done));
        self.keep(claim, left)
    }

    /// Records that the rank has environments for `work`, whose episodes `done` are already in the
    /// journals. The rest of the blocks that the rank holds runs first. `suspects` are the episodes
    /// that have to run alone.
    pub fn visit(&mut self, work: &Work, done: Vec<u64>, suspects: BTreeSet<u64>) {
        let job = work.job.index;
        self.claims.helps(job, 1);
        let is_in_blocks = self
            .open
            .iter()
            .any(|((of, _), open)| *of == job && open.left.is_some());
        let builds = match work.job.length {
            Length::Episodes(count) if is_in_blocks => work.job.rebuilds(count),
            _ => Vec::new(),
        };
        let later = self
            .open
            .keys()
            .filter(|(of, _)| *of == job)
            .map(|(_, block)| *block)
            .collect();
        let work = work.clone();
        let (queue, apart) = (VecDeque::new(), Vec::new());
        self.visit = Some(Visit {
            work,
            builds,
            build: 0,
            done,
            suspects,
            queue,
            apart,
            later,
            is_over: false,
        });
    }

    /// Returns the next episode of the current build for any free environment, as far as the rank
    /// holds leases for it.
    pub fn queued(&mut self) -> Option<u64> {
        self.visit.as_mut()?.queue.pop_front()
    }

    /// Returns the episodes of the current build that have to run alone.
    pub fn apart(&mut self) -> Vec<u64> {
        let visit = self.visit.as_mut();
        visit.map_or_else(Vec::new, |visit| std::mem::take(&mut visit.apart))
    }

    /// Checks that the store has answered all claims of [`Leases::next`].
    ///
    /// # Errors
    /// Returns the [`LeaseError`] of a claim that failed.
    pub fn check(&mut self) -> Result<(), LeaseError> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Returns whether an episode may be written to the journal: false if another rank has taken
    /// over its lease.
    ///
    /// # Errors
    /// Returns a [`LeaseError`] if the store does not answer.
    pub fn may_write(&mut self, job: JobIndex, episode: u64) -> Result<bool, LeaseError> {
        let Some(block) = self.block_of(job, episode) else {
            return Ok(self.is_foreign(job));
        };
        let holder = self.open[&(job, block)].holder;
        match self.claims.mark(holder, job, block)? {
            Some(marked) => self
                .open
                .entry((job, block))
                .and_modify(|open| open.holder = marked),
            None => return Ok(self.lose(job, block)),
        };
        Ok(true)
    }

    /// Ends the visit of a job: its environments are closed. `is_done` says that the job ran to its
    /// end.
    pub fn leave(&mut self, job: JobIndex, is_done: bool) {
        self.claims.helps(job, -1);
        self.visit = None;
        let whole = |((of, block), open): (&(JobIndex, usize), &OpenBlock)| {
            (*of == job && open.left.is_none()).then_some(*block)
        };
        let whole: Vec<_> = self.open.iter().filter_map(whole).collect();
        if is_done {
            whole.into_iter().for_each(|block| self.close(job, block));
        }
    }

    /// Gives up a job if blocks of it are still held: it did not run to its end and will not, so no
    /// rank is to run it. Returns whether that is so.
    pub fn give_up(&mut self, job: JobIndex) -> bool {
        let is_held = self.open.keys().any(|(of, _)| *of == job);
        if is_held {
            self.open.retain(|(of, _), _| *of != job);
            self.claims.shut(job);
        }
        is_held
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

/// Returns the episodes of a claim that no journal has.
fn left(claim: &Claim, work: &Work, done: &[u64]) -> BTreeSet<u64> {
    let is_left = |episode: &u64| work.runs(*episode) && done.binary_search(episode).is_err();
    claim.episodes.clone().filter(is_left).collect()
}

impl Leases {
    fn keep(&mut self, claim: &Claim, left: Option<BTreeSet<u64>>) -> bool {
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

    fn close(&mut self, job: JobIndex, block: usize) {
        if let Some(open) = self.open.remove(&(job, block)) {
            self.claims.done(open.holder, job, block);
        }
    }

    /// Returns the number of the next build of the environments that has work.
    pub fn next_build(&mut self) -> Option<u64> {
        let Self { visit, open, .. } = self;
        let visit = visit.as_mut()?;
        let build_of = |block: &usize| {
            let first = open.get(&(visit.work.job.index, *block))?.episodes.start;
            visit.builds.iter().position(|build| build.contains(&first))
        };
        let next = visit.later.iter().find_map(build_of)?;
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut visit.later)
            .into_iter()
            .partition(|block| build_of(block) == Some(next));
        (visit.build, visit.later) = (next, later.into());
        now.into_iter()
            .for_each(|block| enqueue(visit, &open[&(visit.work.job.index, block)]));
        Some(next as u64)
    }

    fn take(&mut self, claim: &Claim) {
        let Some(visit) = &self.visit else { return };
        let left = left(claim, &visit.work, &visit.done);
        if !self.keep(claim, Some(left)) {
            return;
        }
        let Self {
            visit: Some(visit),
            open,
            ..
        } = self
        else {
            return;
        };
        let block = &open[&(claim.job, claim.block)];
        match visit
            .builds
            .get(visit.build)
            .is_some_and(|build| build.contains(&block.episodes.start))
        {
            true => enqueue(visit, block),
            false => visit.later.push_back(claim.block),
        }
    }

    fn block_of(&self, job: JobIndex, episode: u64) -> Option<usize> {
        let of_job = self.open.range((job, 0)..=(job, usize::MAX));
        of_job
            .into_iter()
            .find(|(_, open)| open.episodes.contains(&episode))
            .map(|((_, block), _)| *block)
    }

    /// Returns whether `job` is not leased by the current visit. In a leased job, an episode
    /// without a lease belongs to another rank.
    fn is_foreign(&self, job: JobIndex) -> bool {
        self.visit
            .as_ref()
            .is_none_or(|visit| visit.work.job.index != job)
    }

    /// Removes a block that another rank has taken over, so that no more of it is started.
    fn lose(&mut self, job: JobIndex, block: usize) -> bool {
        if let (Some(open), Some(visit)) = (self.open.remove(&(job, block)), &mut self.visit) {
            visit
                .queue
                .retain(|episode| !open.episodes.contains(episode));
            visit
                .apart
                .retain(|episode| !open.episodes.contains(episode));
            visit.later.retain(|other| *other != block);
        }
        false
    }

    /// Records that an episode is in the journal.
    pub fn written(&mut self, job: JobIndex, episode: u64) {
        let Some(block) = self.block_of(job, episode) else {
            return;
        };
        let Some(open) = self.open.get_mut(&(job, block)) else {
            return;
        };
        let Some(left) = &mut open.left else { return };
        left.remove(&episode);
        if left.is_empty() {
            self.close(job, block);
        }
    }
}

/// The episodes of the current build for any free environment. They are claimed from the store on
/// demand. At the end, call [`Leases::check`] to see whether an error has ended them.
impl Iterator for Leases {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let visit = self.visit.as_mut()?;
            if let Some(episode) = visit.queue.pop_front() {
                return Some(episode);
            }
            // A block of another build ends the current build.
            if visit.is_over || !visit.later.is_empty() || self.error.is_some() {
                return None;
            }
            match self.claims.claim(Want::Stay, BTreeSet::new()) {
                Ok(NextStep::Run(claim)) => self.take(&claim),
                Ok(_) => visit.is_over = true,
                Err(err) => self.error = Some(err),
            }
        }
    }
}

fn enqueue(visit: &mut Visit, open: &OpenBlock) {
    let left = open.left.iter().flatten().copied();
    let (apart, queue): (Vec<_>, Vec<_>) =
        left.partition(|episode| visit.suspects.contains(episode));
    visit.queue.extend(queue);
    visit.apart.extend(apart);
}
