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

use jobs::assign::lease::{Claim, NextStep};
use jobs::assign::{self, Assign, Work};
use jobs::job::JobIndex;
use jobs::progress::Progress;

use crate::eval::Stop;
use crate::eval::lease::{BlockCut, Leases};
use crate::eval::ledger::Ledger;
use crate::eval::monitor::Event;
use crate::eval::rank::history::JournalHistory;
use crate::eval::rank_setup::RankSetup;
use tcpstore::StoreAddr;

/// The jobs of a rank, one after the other.
pub struct JobQueue {
    /// The rank's own jobs, with the episodes of all stages.
    own: Vec<Work>,
    /// The jobs that are leased, with the episodes of all stages; `None` if none ever is.
    leased: Option<Vec<Work>>,
    /// Episodes of each stage; with none or one, the stages make no difference.
    stages: Vec<Range<u64>>,
    /// The stage that the rank is in.
    stage: usize,
    /// What is left of its own jobs.
    left: std::vec::IntoIter<Work>,
    /// The jobs that are leased in it.
    by_job: BTreeMap<JobIndex, Work>,
    /// Those of them of which this rank has already run a part: its journal has newer lines than it
    /// has read.
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
        let is_leasing =
            args.assign == Assign::Dynamic && env.world_size > 1 && env.master.is_some();
        let all = run.placement.work.iter().cloned();
        let (leased, own): (Vec<_>, Vec<_>) =
            all.partition(|work| is_leasing && work.share.is_none());
        let mut queue = Self {
            own,
            leased: is_leasing.then_some(leased),
            // Only a run that a sequential test may end early has stages.
            stages: match out.monitor.early_stop {
                Some(_) => assign::stages(&run.plan.jobs, args.assignment(), env.world_size),
                None => Vec::new(),
            },
            stage: 0,
            left: Vec::new().into_iter(),
            by_job: BTreeMap::new(),
            begun: BTreeSet::new(),
        };
        queue.enter(0, run, past, out)?;
        Ok(queue)
    }

    /// Returns the jobs that only this rank runs; `None` if jobs are leased.
    pub fn own(&self) -> Option<&[Work]> {
        self.leased.is_none().then_some(self.own.as_slice())
    }

    /// Returns whether each job is run in several parts.
    pub fn is_staged(&self) -> bool {
        self.stages.len() > 1
    }

    /// Returns whether `work` is leased.
    pub fn is_leased(&self, work: &Work) -> bool {
        self.leased.is_some() && work.share.is_none()
    }

    /// Returns the next job, or the next part of one. Waits while other ranks hold all that is
    /// left, because they may die. Reads `past` again if it may be outdated.
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
            if let Some(work) = self.left.next() {
                return Ok(Some(work));
            }
            if let Some(work) = self.next_leased(run, past, out)? {
                return Ok(Some(work));
            }
            let stage = self.stage + 1;
            if out.monitor.is_over() || stage >= self.stages.len() {
                return Ok(None);
            }
            // This rank may have run parts of the same jobs in the stage before.
            past.refresh_own(run)?;
            self.enter(stage, run, past, out)?;
        }
    }

    /// Enters a stage, and begins its leases.
    fn enter(
        &mut self,
        stage: usize,
        run: &RankSetup,
        past: &JournalHistory,
        out: &mut Ledger,
    ) -> Result<(), Stop> {
        let range = self.is_staged().then(|| self.stages[stage].clone());
        let part = |work: &Work| match &range {
            Some(range) => work.in_stage(range),
            None => Some(work.clone()),
        };
        let own: Vec<_> = self.own.iter().filter_map(part).collect();
        (self.stage, self.left) = (stage, own.into_iter());
        self.begun.clear();
        let env = &run.env;
        if let (Some(leased), Some((host, port))) = (&self.leased, env.master.clone()) {
            let mut leased: Vec<_> = leased.iter().filter_map(part).collect();
            leased.retain(|work| !past.given_up.contains(&work.job.index));
            let prefix = format!("rrun/leases/{}/{}/{stage}", env.run_id, env.round);
            let tasks = cut(run).tasks(&leased, &past.lines);
            let leases = Leases::start(StoreAddr { host, port }, prefix, env.rank, tasks)?;
            out.leases = Some(leases);
            let by_job = leased.into_iter().map(|work| (work.job.index, work));
            self.by_job = by_job.collect();
        }
        Ok(())
    }

    /// Returns the next job that this rank has a lease for; `None` if the stage is over or the rank
    /// has to stop.
    fn next_leased(
        &mut self,
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
                    out.monitor.peers.leased(self.stage);
                    break;
                }
                NextStep::Nothing | NextStep::Ask(_) => {
                    out.monitor.on(Event::Resting);
                    out.monitor.tick();
                    out.monitor.peers.rest(self.stage);
                    if out.monitor.is_over() {
                        break;
                    }
                    let lost = out.monitor.peers.lost(run.args.lease_timeout());
                    gone = lost.into_iter().collect();
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
        let Some(work) = self.by_job.get(&claim.job) else {
            return Ok(None);
        };
        if claim.is_taken_over {
            past.refresh(run, &out.monitor)?;
            out.say_about(&work.job.name, "takes over the rest from another rank");
        } else if self.begun.contains(&claim.job) {
            past.refresh_own(run)?;
        }
        self.begun.insert(claim.job);
        let progress = Progress::of(claim.job, past.about(claim.job));
        let done: Vec<_> = progress.done().collect();
        let is_in_blocks = cut(run).is_in_blocks(&work.job);
        let leases = out.leases.as_mut();
        let is_left = leases.is_some_and(|leases| leases.hold(claim, work, is_in_blocks, &done));
        Ok(is_left.then(|| work.clone()))
    }
}

/// Returns how jobs are cut into leases.
fn cut(run: &RankSetup) -> BlockCut {
    BlockCut {
        shard: run.args.assignment().shard,
        world_size: run.env.world_size,
    }
}
