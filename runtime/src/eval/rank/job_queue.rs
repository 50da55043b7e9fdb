//! The order of a rank's jobs: first those that are its own, then those that it gets leases for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jobs::assign::lease::{Claim, NextStep};
use jobs::assign::{Assign, Work};
use jobs::eval_args::EvalArgs;
use jobs::job::JobIndex;
use jobs::journal::Line;
use jobs::progress;
use jobs::rank_env::RankEnv;

use crate::eval::error::RankError;
use crate::eval::lease::{BlockCut, LeaseClient, LeaseConfig, LeaseError, Leases};
use crate::eval::rank::history::JournalHistory;
use crate::eval::rank::idle::IdleRank;
use c10d::StoreAddr;

/// The jobs of a rank, one after the other.
pub struct JobQueue {
    own: std::vec::IntoIter<Work>,
    leased: Option<Leased>,
}

/// The jobs that are leased.
struct Leased {
    works: BTreeMap<JobIndex, Work>,
    cut: BlockCut,
    leases: Leases,
    /// Time without a heartbeat after which the leases of a rank are taken over.
    timeout: Duration,
    /// Jobs of which this rank has already run a part: its journal has newer lines than it has
    /// read.
    begun: BTreeSet<JobIndex>,
}

impl JobQueue {
    /// Creates the queue. Jobs of `work` that are shared by environments are the rank's own. The
    /// others are leased with `--assign dynamic` if there is more than one rank. `lines` are the
    /// lines of the journals.
    ///
    /// # Errors
    /// Returns a [`LeaseError`] if the store cannot be reached.
    pub fn new(
        work: Vec<Work>,
        args: &EvalArgs,
        env: &RankEnv,
        lines: &[Line],
    ) -> Result<Self, LeaseError> {
        let is_dynamic = args.assign == Assign::Dynamic && env.world_size > 1;
        let Some((host, port)) = env.master.clone().filter(|_| is_dynamic) else {
            return Ok(Self {
                own: work.into_iter(),
                leased: None,
            });
        };
        let (own, work): (Vec<_>, Vec<_>) = work.into_iter().partition(|work| work.share.is_some());
        let cut = BlockCut {
            shard: args.assignment().shard,
            most: args.lease,
            world_size: env.world_size,
        };
        let config = LeaseConfig {
            addr: StoreAddr { host, port },
            prefix: format!("rrun/leases/{}/{}", env.run_id, env.round),
            rank: env.rank,
        };
        let (client, me) = LeaseClient::start(config, cut.tasks(&work, lines))?;
        let leased = Leased {
            works: work
                .into_iter()
                .map(|work| (work.job.index, work))
                .collect(),
            cut,
            leases: Leases::new(client, me),
            timeout: args.lease_timeout(),
            begun: BTreeSet::new(),
        };
        Ok(Self {
            own: own.into_iter(),
            leased: Some(leased),
        })
    }

    /// Returns the jobs that only this rank runs; `None` if jobs are leased.
    pub fn own(&self) -> Option<&[Work]> {
        self.leased.is_none().then_some(self.own.as_slice())
    }

    /// Returns the leases for `work`; `None` if it is not leased.
    pub fn leases(&self, work: &Work) -> Option<&Leases> {
        self.leased
            .as_ref()
            .filter(|_| work.share.is_none())
            .map(|leased| &leased.leases)
    }

    /// Returns the next job. Waits while other ranks hold all that is left, because they may die.
    /// Reads `history` again if it may be outdated.
    ///
    /// # Errors
    /// Returns an error if the store is gone or the journals cannot be read.
    pub fn next(
        &mut self,
        history: &mut JournalHistory,
        idle: &mut IdleRank,
    ) -> Result<Option<Work>, RankError> {
        if let Some(work) = self.own.next() {
            return Ok(Some(work));
        }
        let Some(leased) = &mut self.leased else {
            return Ok(None);
        };
        let mut gone = BTreeSet::new();
        loop {
            match leased.leases.claim(std::mem::take(&mut gone))? {
                NextStep::Run(claim) => {
                    if let Some(work) = leased.take(&claim, history, idle)? {
                        return Ok(Some(work));
                    }
                }
                NextStep::Finished => {
                    idle.finished();
                    return Ok(None);
                }
                NextStep::Nothing | NextStep::Ask(_) => {
                    if !idle.rest() {
                        return Ok(None);
                    }
                    gone = idle.lost(leased.timeout);
                }
            }
        }
    }

    /// Call it after a job. If blocks of it are still held, the job has failed for good, and no
    /// rank takes more of it.
    pub fn after(&self, work: &Work) {
        if let Some(leases) = self.leases(work) {
            leases.give_up(work.job.index);
        }
    }
}

impl Leased {
    /// Returns the work for a claim; `None` if none of it is left.
    fn take(
        &mut self,
        claim: &Claim,
        history: &mut JournalHistory,
        idle: &mut IdleRank,
    ) -> Result<Option<Work>, RankError> {
        let Some(work) = self.works.get(&claim.job) else {
            return Ok(None);
        };
        if claim.is_taken_over || self.begun.contains(&claim.job) {
            *history = idle.history()?;
        }
        if claim.is_taken_over {
            idle.say(&format!(
                "{}: takes over the rest from another rank",
                work.job.name
            ));
        }
        self.begun.insert(claim.job);
        let about = history.about(claim.job);
        let done = progress::done(about).remove(&claim.job).unwrap_or_default();
        let is_left = self
            .leases
            .hold(claim, work, self.cut.is_in_blocks(&work.job), &done);
        Ok(is_left.then(|| work.clone()))
    }
}
