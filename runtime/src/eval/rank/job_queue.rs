//! The order of a rank's jobs: first those that are its own, then those that it gets leases for.
//!
//! ```text
//! stage 0: own jobs ─► leased jobs ─► stage 1: … ─► the last stage ─► nothing left
//! ```
//! Most runs have one stage. A run that a sequential test may end early has several, each with some
//! episodes of every job ([`jobs::assign::stages`]). A leased stage ends for all ranks together,
//! because each has leases of its own; own jobs wait for nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use jobs::assign::lease::{Claim, NextStep};
use jobs::assign::{Assign, Work};
use jobs::eval_args::EvalArgs;
use jobs::job::JobIndex;
use jobs::journal::Line;
use jobs::progress;
use jobs::rank_env::RankEnv;

use crate::eval::lease::{BlockCut, Claims, LeaseConfig, LeaseError, Leases};
use crate::eval::rank::history::JournalHistory;
use crate::eval::rank::idle::IdleRank;
use crate::eval::stop::Stop;
use tcpstore::StoreAddr;

/// The jobs of a rank, one after the other.
pub struct JobQueue {
    /// The rank's own jobs, with the episodes of all stages.
    own: Vec<Work>,
    leasing: Option<Leasing>,
    /// Episodes of each stage; with none or one, the stages make no difference.
    stages: Vec<Range<u64>>,
    now: Stage,
}

/// The stage that a rank is in.
struct Stage {
    number: usize,
    own: std::vec::IntoIter<Work>,
    leased: Option<Leased>,
}

/// How jobs are leased.
struct Leasing {
    /// The leased jobs, with the episodes of all stages.
    work: Vec<Work>,
    cut: BlockCut,
    addr: StoreAddr,
    /// Prefix of the keys in the store; the number of the stage follows.
    prefix: String,
    rank: usize,
    /// Time without a heartbeat after which the leases of a rank are taken over.
    timeout: Duration,
    /// Jobs that have failed for good in this rank.
    given_up: BTreeSet<JobIndex>,
}

/// The jobs that are leased in a stage.
struct Leased {
    works: BTreeMap<JobIndex, Work>,
    cut: BlockCut,
    leases: Leases,
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
        stages: Vec<Range<u64>>,
        args: &EvalArgs,
        env: &RankEnv,
        lines: &[Line],
    ) -> Result<Self, LeaseError> {
        let is_dynamic = args.assign == Assign::Dynamic && env.world_size > 1;
        let addr = env.master.clone().filter(|_| is_dynamic);
        let (own, leased): (Vec<_>, Vec<_>) = work
            .into_iter()
            .partition(|work| addr.is_none() || work.share.is_some());
        let leasing = addr.map(|(host, port)| Leasing {
            work: leased,
            cut: BlockCut {
                shard: args.assignment().shard,
                most: args.lease,
                world_size: env.world_size,
            },
            addr: StoreAddr { host, port },
            prefix: format!("rrun/leases/{}/{}", env.run_id, env.round),
            rank: env.rank,
            timeout: args.lease_timeout(),
            given_up: BTreeSet::new(),
        });
        let mut queue = Self {
            own,
            leasing,
            stages,
            now: Stage {
                number: 0,
                own: Vec::new().into_iter(),
                leased: None,
            },
        };
        queue.enter(0, lines)?;
        Ok(queue)
    }

    /// Returns the jobs that only this rank runs; `None` if jobs are leased.
    pub fn own(&self) -> Option<&[Work]> {
        self.leasing.is_none().then_some(self.own.as_slice())
    }

    /// Returns whether each job is run in several parts.
    pub fn is_staged(&self) -> bool {
        self.stages.len() > 1
    }

    /// Returns the leases for `work`; `None` if it is not leased.
    pub fn leases(&self, work: &Work) -> Option<&Leases> {
        self.now
            .leased
            .as_ref()
            .filter(|_| work.share.is_none())
            .map(|leased| &leased.leases)
    }

    /// Returns the next job, or the next part of one. Waits while other ranks hold all that is left,
    /// because they may die. Reads `history` again if it may be outdated.
    ///
    /// # Errors
    /// Returns an error if the store is gone or the journals cannot be read.
    pub fn next(
        &mut self,
        history: &mut JournalHistory,
        idle: &mut IdleRank,
    ) -> Result<Option<Work>, Stop> {
        loop {
            if idle.is_over() {
                return Ok(None);
            }
            if let Some(work) = self.now.own.next() {
                return Ok(Some(work));
            }
            let stage = self.now.number;
            if let Some(leased) = &mut self.now.leased
                && let Some(work) = leased.next(stage, history, idle)?
            {
                return Ok(Some(work));
            }
            if idle.is_over() || stage + 1 >= self.stages.len() {
                return Ok(None);
            }
            // This rank may have run parts of the same jobs in the stage before.
            history.refresh_own(idle.setup)?;
            self.enter(stage + 1, &history.lines)?;
        }
    }

    /// Call it after a job. If blocks of it are still held, the job has failed for good, and no
    /// rank takes more of it.
    pub fn after(&mut self, work: &Work) {
        let index = work.job.index;
        let has_failed = self
            .leases(work)
            .is_some_and(|leases| leases.give_up(index));
        if has_failed && let Some(leasing) = &mut self.leasing {
            leasing.given_up.insert(index);
        }
    }

    fn enter(&mut self, stage: usize, lines: &[Line]) -> Result<(), LeaseError> {
        let range = self.is_staged().then(|| self.stages[stage].clone());
        let part = |work: &Work| match &range {
            Some(range) => work.in_stage(range),
            None => Some(work.clone()),
        };
        let leased = self.leasing.as_ref().map(|leasing| {
            let parts = leasing.work.iter().filter_map(part).collect();
            leasing.of(stage, parts, lines)
        });
        let own: Vec<_> = self.own.iter().filter_map(part).collect();
        self.now = Stage {
            number: stage,
            own: own.into_iter(),
            leased: leased.transpose()?,
        };
        Ok(())
    }
}

impl Leasing {
    /// Begins the leases of a stage.
    fn of(&self, stage: usize, work: Vec<Work>, lines: &[Line]) -> Result<Leased, LeaseError> {
        let is_left = |work: &Work| !self.given_up.contains(&work.job.index);
        let work: Vec<_> = work.into_iter().filter(is_left).collect();
        let config = LeaseConfig {
            addr: self.addr.clone(),
            prefix: format!("{}/{stage}", self.prefix),
            rank: self.rank,
        };
        let (claims, me) = Claims::start(config, self.cut.tasks(&work, lines))?;
        Ok(Leased {
            works: work
                .into_iter()
                .map(|work| (work.job.index, work))
                .collect(),
            cut: self.cut,
            leases: Leases::new(claims, me),
            timeout: self.timeout,
            begun: BTreeSet::new(),
        })
    }
}

impl Leased {
    /// Returns the next job that this rank has a lease for; `None` if the stage is over or the rank
    /// has to stop.
    fn next(
        &mut self,
        stage: usize,
        history: &mut JournalHistory,
        idle: &mut IdleRank,
    ) -> Result<Option<Work>, Stop> {
        let mut gone = BTreeSet::new();
        loop {
            match self.leases.claim(std::mem::take(&mut gone))? {
                NextStep::Run(claim) => {
                    if let Some(work) = self.take(&claim, history, idle)? {
                        return Ok(Some(work));
                    }
                }
                NextStep::Finished => {
                    idle.finished(stage);
                    return Ok(None);
                }
                NextStep::Nothing | NextStep::Ask(_) => {
                    if !idle.rest(stage) {
                        return Ok(None);
                    }
                    gone = idle.lost(self.timeout);
                }
            }
        }
    }

    /// Returns the work for a claim; `None` if none of it is left.
    fn take(
        &mut self,
        claim: &Claim,
        history: &mut JournalHistory,
        idle: &mut IdleRank,
    ) -> Result<Option<Work>, Stop> {
        let Some(work) = self.works.get(&claim.job) else {
            return Ok(None);
        };
        if claim.is_taken_over {
            idle.refresh(history)?;
        } else if self.begun.contains(&claim.job) {
            history.refresh_own(idle.setup)?;
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
