//! The scanner: the one rank that reads leases for all who wait, and takes over what no living rank
//! holds.
//!
//! ```text
//! role? ─► closed of all jobs ─► leases, 1 024 at a time, and lives of their holders ─┐
//!   │ no: ask again later                                                            │
//!   │ done: finished        none to take over: ask again later, or all are closed ◄──┤
//!   ▼                                                                                ▼
//! a rank asks that waits ◄── give the role back ◄── release the others ◄── take one over
//! ```
//! If every rank that waits read every lease, the store would serve the square of their number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::assign::lease::claimer::{Claim, Claimer, LeasedJob, NextStep, PendingOp};
use crate::assign::lease::{Hold, LeaseHolder, LeaseKey, LeaseOp};

/// The role of a scanner that was the same at so many looks is taken over.
const PATIENCE: u32 = 4;

/// Leases in one operation.
const AT_ONCE: usize = 1024;

/// What the scanner has found so far in this pass.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// How often ranks were started, as far as it was looked up.
    pub lives: BTreeMap<usize, i64>,
    /// Leases that no living rank holds.
    pub found: VecDeque<FoundLease>,
}

/// A lease that may be taken over: job, block, and what it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundLease(pub usize, pub usize, pub Hold);

impl Claimer {
    /// Asks to be the scanner, the one rank that reads leases for all who wait. `from` is what the
    /// store is expected to say.
    pub(super) fn ask_role(&mut self, from: Hold) -> NextStep {
        if self.jobs.iter().all(|seen| seen.is_closed) {
            return NextStep::Finished;
        }
        let (from, wanted) = match self.role {
            Some(role) => (Hold::By(role), role.marked()),
            None => (from, self.me),
        };
        let op = LeaseOp::Swap(LeaseKey::Scanner, from, Hold::By(wanted));
        self.ask(PendingOp::Role(wanted), op)
    }

    pub(super) fn on_role(&mut self, wanted: LeaseHolder, hold: Hold) -> NextStep {
        self.role = None;
        match hold {
            Hold::Done(_) => {
                self.jobs.iter_mut().for_each(|seen| seen.is_closed = true);
                NextStep::Finished
            }
            Hold::By(holder) if holder == wanted => {
                self.role = Some(holder);
                self.scan()
            }
            Hold::By(holder) => {
                let looks = match self.scanner {
                    Some((seen, looks)) if seen == holder => looks + 1,
                    _ => 1,
                };
                self.scanner = Some((holder, looks % PATIENCE));
                // It does not scan any more, or it was this rank before it was restarted.
                let is_own = holder.rank == self.me.rank && looks == 1;
                match looks == PATIENCE || is_own {
                    true => self.take_role(holder),
                    false => NextStep::Nothing,
                }
            }
            Hold::Free => NextStep::Nothing,
        }
    }

    fn take_role(&mut self, from: LeaseHolder) -> NextStep {
        // An equal holder would be a mark that this rank has forgotten.
        let mark = match from.rank == self.me.rank {
            true => from.marked().mark,
            false => self.me.mark,
        };
        let wanted = LeaseHolder { mark, ..self.me };
        let op = LeaseOp::Swap(LeaseKey::Scanner, Hold::By(from), Hold::By(wanted));
        self.ask(PendingOp::Role(wanted), op)
    }

    /// Reads which jobs are closed, then the leases of the others.
    fn scan(&mut self) -> NextStep {
        let open = (0..self.jobs.len()).filter(|job| !self.jobs[*job].is_closed);
        let open: Vec<_> = open.collect();
        let key = |job: &usize| LeaseKey::Closed(self.jobs[*job].task.job);
        let op = LeaseOp::Sums(open.iter().map(key).collect());
        self.ask(PendingOp::Closed(open, Scan::default()), op)
    }

    /// Reads the leases of the open blocks from block `from` of job `job` on.
    pub(super) fn look(&mut self, mut job: usize, mut from: usize, scan: Scan) -> NextStep {
        while let Some(seen) = self.jobs.get_mut(job) {
            let LeasedJob { blocks, done, .. } = &seen.task;
            seen.is_closed |= done.len() == blocks.len();
            let open = (from..blocks.len()).filter(|block| !done.contains(block));
            let open: Vec<_> = open.take(AT_ONCE).collect();
            if !seen.is_closed && !open.is_empty() {
                let key = |block: &usize| LeaseKey::Lease(seen.task.job, *block);
                let keys = open.iter().map(key).collect();
                return self.ask(PendingOp::Look(job, open, scan), LeaseOp::Holds(keys));
            }
            (job, from) = (job + 1, 0);
        }
        self.take(scan)
    }

    pub(super) fn on_look(
        &mut self,
        job: usize,
        blocks: &[usize],
        holds: &[Hold],
        mut scan: Scan,
    ) -> NextStep {
        let mut held = Vec::new();
        for (block, hold) in blocks.iter().zip(holds) {
            match hold {
                Hold::Done(_) => drop(self.jobs[job].task.done.insert(*block)),
                Hold::Free => scan.found.push_back(FoundLease(job, *block, *hold)),
                Hold::By(holder) => held.push((*block, *holder)),
            }
        }
        let ranks: BTreeSet<_> = held.iter().map(|(_, holder)| holder.rank).collect();
        let is_new = |rank: &usize| !scan.lives.contains_key(rank) && *rank != self.me.rank;
        let new: Vec<_> = ranks.into_iter().filter(is_new).collect();
        let from = blocks.last().map_or(0, |last| last + 1);
        if new.is_empty() {
            return self.judge(job, from, &held, scan);
        }
        let op = LeaseOp::Sums(new.iter().copied().map(LeaseKey::Life).collect());
        self.ask(PendingOp::Lives(new, job, from, held, scan), op)
    }

    /// Decides about leases that have a holder. A dead rank's lease is taken over. The lease of a
    /// rank that may come back is taken over if it has not changed since it was last read. If the
    /// rank holds the lease itself although it has no work, it was restarted, and runs the block
    /// again.
    pub(super) fn judge(
        &mut self,
        job: usize,
        from: usize,
        held: &[(usize, LeaseHolder)],
        mut scan: Scan,
    ) -> NextStep {
        for (block, holder) in held {
            let key = LeaseKey::Lease(self.jobs[job].task.job, *block);
            let is_own = holder.rank == self.me.rank && holder.life <= self.me.life;
            let life = scan.lives.get(&holder.rank);
            let is_dead = is_own || life.is_some_and(|life| *life > holder.life);
            let is_gone = self.gone.contains(&holder.rank);
            let is_still = is_gone && self.watched.insert(key, *holder) == Some(*holder);
            if !is_gone {
                self.watched.remove(&key);
            }
            if is_dead || is_still {
                let hold = Hold::By(*holder);
                scan.found.push_back(FoundLease(job, *block, hold));
            }
        }
        self.look(job, from, scan)
    }

    /// Takes over one of the leases that were found.
    fn take(&mut self, mut scan: Scan) -> NextStep {
        let Some(lease) = scan.found.pop_front() else {
            return self.all_closed();
        };
        let FoundLease(job, block, hold) = lease;
        let key = LeaseKey::Lease(self.jobs[job].task.job, block);
        let op = LeaseOp::Swap(key, hold, Hold::By(self.me));
        self.ask(PendingOp::Take(lease, scan), op)
    }

    pub(super) fn on_take(&mut self, lease: FoundLease, hold: Hold, scan: Scan) -> NextStep {
        let FoundLease(job, block, _) = lease;
        match hold == Hold::By(self.me) {
            true => {
                let claim = self.claimed(job, block, true);
                self.release_others(claim, scan)
            }
            // Another rank was faster.
            false => self.take(scan),
        }
    }

    /// Releases the other leases that were found, so that the next scanner need not look at them
    /// twice, and gives the role back.
    ///
    /// A lease that was held never becomes free again: whoever claims a free one by its number takes
    /// it for a block that no rank has begun. It is left to a life of its holder that is over.
    pub(super) fn release_others(&mut self, claim: Claim, mut scan: Scan) -> NextStep {
        while let Some(FoundLease(job, block, hold)) = scan.found.pop_front() {
            if let Hold::By(holder) = hold {
                let key = LeaseKey::Lease(self.jobs[job].task.job, block);
                let released = LeaseHolder { life: 0, ..holder };
                let op = LeaseOp::Swap(key, hold, Hold::By(released));
                return self.ask(PendingOp::Release(claim, scan), op);
            }
        }
        match self.role.take() {
            Some(role) => {
                let op = LeaseOp::Swap(LeaseKey::Scanner, Hold::By(role), Hold::Free);
                self.ask(PendingOp::HandOver(claim), op)
            }
            None => NextStep::Run(claim),
        }
    }

    /// Tells the ranks that wait if all blocks are done.
    fn all_closed(&mut self) -> NextStep {
        if !self.jobs.iter().all(|seen| seen.is_closed) {
            return NextStep::Nothing;
        }
        let Some(role) = self.role else {
            return NextStep::Finished;
        };
        let op = LeaseOp::Swap(LeaseKey::Scanner, Hold::By(role), Hold::Done(role));
        self.ask(PendingOp::AllClosed, op)
    }
}
