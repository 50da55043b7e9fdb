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
use jobs::assign::{self, Assign, Work};
use jobs::job::JobIndex;
use jobs::progress;

use crate::eval::lease::{BlockCut, Claims, LeaseConfig, Leases};
use crate::eval::ledger::Ledger;
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::rank::history::JournalHistory;
use crate::eval::setup::rank_setup::RankSetup;
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
    timeout: Duration,
    /// Jobs of which this rank has already run a part: its journal has newer lines than it has
    /// read.
    begun: BTreeSet<JobIndex>,
}

impl JobQueue {
    /// Creates the queue. Jobs that are shared by environments are the rank's own. The others are
    /// leased with `--assign dynamic` if there is more than one rank.
    ///
    /// # Errors
    /// Fails if the store cannot be reached.
    pub fn new(run: &RankSetup, past: &JournalHistory, out: &mut Ledger) -> Result<Self, Stop> {
        let RankSetup { args, env, .. } = run;
        let is_dynamic = args.assign == Assign::Dynamic && env.world_size > 1;
        let addr = env.master.clone().filter(|_| is_dynamic);
        let (own, leased): (Vec<_>, Vec<_>) = run
            .placement
            .work
            .iter()
            .cloned()
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
        // Only a run that a sequential test may end early has stages.
        let stages = match out.monitor.early_stop {
            Some(_) => assign::stages(&run.plan.jobs, args.assignment(), env.world_size),
            None => Vec::new(),
        };
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
        queue.enter(0, past, out)?;
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

    /// Returns whether `work` is leased.
    pub fn is_leased(&self, work: &Work) -> bool {
        self.leasing.is_some() && work.share.is_none()
    }

    /// Returns the next job, or the next part of one. Waits while other ranks hold all that is left,
    /// because they may die. Reads `past` again if it may be outdated.
    ///
    /// # Errors
    /// Returns an error if the store is gone or the journals cannot be read.
    pub fn next(
        &mut self,
        run: &RankSetup,
        past: &mut JournalHistory,
        out: &mut Ledger,
    ) -> Result<Option<Work>, Stop> {
        loop {
            if out.monitor.is_over() {
                return Ok(None);
            }
            if let Some(work) = self.now.own.next() {
                return Ok(Some(work));
            }
            let stage = self.now.number;
            if let Some(leased) = &mut self.now.leased
                && let Some(work) = leased.next(stage, run, past, out)?
            {
                return Ok(Some(work));
            }
            if out.monitor.is_over() || stage + 1 >= self.stages.len() {
                return Ok(None);
            }
            // This rank may have run parts of the same jobs in the stage before.
            past.refresh_own(run)?;
            self.enter(stage + 1, past, out)?;
        }
    }

    /// Call it after a job. If blocks of it are still held, the job has failed for good, and no
    /// rank takes more of it.
    pub fn after(&mut self, work: &Work, out: &mut Ledger) {
        let index = work.job.index;
        if let Some(leasing) = &mut self.leasing
            && let Some(leases) = &mut out.leases
            && leases.give_up(index)
        {
            leasing.given_up.insert(index);
        }
    }

    fn enter(&mut self, stage: usize, past: &JournalHistory, out: &mut Ledger) -> Result<(), Stop> {
        let range = self.is_staged().then(|| self.stages[stage].clone());
        let part = |work: &Work| match &range {
            Some(range) => work.in_stage(range),
            None => Some(work.clone()),
        };
        let leased = self.leasing.as_ref().map(|leasing| {
            let parts = leasing.work.iter().filter_map(part).collect();
            leasing.of(stage, parts, past, out)
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
    fn of(
        &self,
        stage: usize,
        mut work: Vec<Work>,
        past: &JournalHistory,
        out: &mut Ledger,
    ) -> Result<Leased, Stop> {
        work.retain(|work| !self.given_up.contains(&work.job.index));
        let config = LeaseConfig {
            addr: self.addr.clone(),
            prefix: format!("{}/{stage}", self.prefix),
            rank: self.rank,
        };
        let (claims, me) = Claims::start(config, self.cut.tasks(&work, &past.lines))?;
        out.leases = Some(Leases::new(claims, me));
        Ok(Leased {
            works: work
                .into_iter()
                .map(|work| (work.job.index, work))
                .collect(),
            cut: self.cut,
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
        run: &RankSetup,
        past: &mut JournalHistory,
        out: &mut Ledger,
    ) -> Result<Option<Work>, Stop> {
        let mut gone = BTreeSet::new();
        while let Some(leases) = &mut out.leases {
            match leases.claim(std::mem::take(&mut gone))? {
                NextStep::Run(claim) => {
                    if let Some(work) = self.take(&claim, run, past, out)? {
                        return Ok(Some(work));
                    }
                }
                NextStep::Finished => {
                    out.monitor.peers.leased(stage);
                    break;
                }
                NextStep::Nothing | NextStep::Ask(_) => {
                    out.monitor.on(&Heartbeat {
                        arrived: true,
                        ..out.beat.clone()
                    });
                    out.monitor.peers.rest(stage);
                    if out.monitor.is_over() {
                        break;
                    }
                    gone = out.monitor.peers.lost(self.timeout).into_iter().collect();
                }
            }
        }
        Ok(None)
    }

    /// Returns the work for a claim; `None` if none of it is left.
    fn take(
        &mut self,
        claim: &Claim,
        run: &RankSetup,
        past: &mut JournalHistory,
        out: &mut Ledger,
    ) -> Result<Option<Work>, Stop> {
        let Some(work) = self.works.get(&claim.job) else {
            return Ok(None);
        };
        if claim.is_taken_over {
            past.refresh(run, &out.monitor)?;
            out.say_about(&work.job.name, "takes over the rest from another rank");
        } else if self.begun.contains(&claim.job) {
            past.refresh_own(run)?;
        }
        self.begun.insert(claim.job);
        let done = progress::done(past.about(claim.job));
        let done = done.get(&claim.job).map_or(&[][..], Vec::as_slice);
        let is_in_blocks = self.cut.is_in_blocks(&work.job);
        let leases = out.leases.as_mut();
        let is_left = leases.is_some_and(|leases| leases.hold(claim, work, is_in_blocks, done));
        Ok(is_left.then(|| work.clone()))
    }
}
