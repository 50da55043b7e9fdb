//! What a rank runs, one job after the other: what is its own, then what it gets leases for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jobs::assign::lease::{Answer, Claim};
use jobs::assign::{Assign, Work};
use jobs::eval_args::EvalArgs;
use jobs::job::JobIndex;
use jobs::journal::Line;
use jobs::rank_env::RankEnv;
use jobs::report;

use crate::eval::history::History;
use crate::eval::lease::expected::Cut;
use crate::eval::lease::{Clerk, LeaseError, Leases, Room};
use c10d::StoreAddr;

/// What a rank runs, one job after the other.
pub struct Agenda {
    own: std::vec::IntoIter<Work>,
    leased: Option<Leased>,
}

/// Jobs of which leases are to be had.
struct Leased {
    works: BTreeMap<JobIndex, Work>,
    cut: Cut,
    leases: Leases,
    /// Time without a sign of life after which a rank's leases are taken over.
    timeout: Duration,
    /// Jobs that the rank has run some of: its own journal has more of them than it has read.
    begun: BTreeSet<JobIndex>,
}

/// Who waits while there is nothing to do.
pub trait Bystander {
    /// Tells the others that this rank is idle, and waits a moment; false if it is to end.
    fn rest(&mut self) -> bool;

    /// Ranks that will not come back, or have been still for `timeout`.
    fn lost(&mut self, timeout: Duration) -> BTreeSet<usize>;

    /// What the journals have by now.
    fn history(&mut self) -> Result<History, String>;

    /// Nothing is left for anyone.
    fn finished(&mut self);

    /// Something that the user should know.
    fn say(&mut self, text: &str);
}

impl Agenda {
    /// Of `work`, jobs that are shared by environments are the rank's own; of the others leases are to be had with
    /// `--assign dynamic`, if there is another rank. `lines` are those of the journals.
    ///
    /// # Errors
    /// [`LeaseError`] when the store cannot be reached.
    pub fn new(work: Vec<Work>, args: &EvalArgs, env: &RankEnv, lines: &[Line]) -> Result<Self, LeaseError> {
        let is_dynamic = args.assign == Assign::Dynamic && env.world_size > 1;
        let Some((host, port)) = env.master.clone().filter(|_| is_dynamic) else {
            return Ok(Self { own: work.into_iter(), leased: None });
        };
        let (own, work): (Vec<_>, Vec<_>) = work.into_iter().partition(|work| work.share.is_some());
        let cut = Cut { shard: args.assignment().shard, most: args.lease, world_size: env.world_size };
        let room = Room {
            addr: StoreAddr { host, port },
            prefix: format!("rrun/leases/{}/{}", env.run_id, env.round),
            rank: env.rank,
        };
        let (clerk, me) = Clerk::start(room, cut.tasks(&work, lines))?;
        let leased = Leased {
            works: work.into_iter().map(|work| (work.job.index, work)).collect(),
            cut,
            leases: Leases::new(clerk, me),
            timeout: args.lease_timeout(),
            begun: BTreeSet::new(),
        };
        Ok(Self { own: own.into_iter(), leased: Some(leased) })
    }

    /// What is this rank's and no other's; `None` if it takes what comes.
    pub fn own(&self) -> Option<&[Work]> {
        self.leased.is_none().then_some(self.own.as_slice())
    }

    /// The leases of a job that is leased.
    pub fn leases(&self, work: &Work) -> Option<Leases> {
        self.leased.as_ref().filter(|_| work.share.is_none()).map(|leased| leased.leases.clone())
    }

    /// The next job; waits while others have all that is left, as they may die. `history` is read again where it has to be
    /// newer.
    ///
    /// # Errors
    /// The store is gone, or the journals cannot be read.
    pub fn next(&mut self, history: &mut History, bystander: &mut dyn Bystander) -> Result<Option<Work>, String> {
        if let Some(work) = self.own.next() {
            return Ok(Some(work));
        }
        let Some(leased) = &mut self.leased else { return Ok(None) };
        let mut gone = BTreeSet::new();
        loop {
            match leased.leases.claim(std::mem::take(&mut gone)).map_err(|err| err.to_string())? {
                Answer::Run(claim) => {
                    if let Some(work) = leased.take(&claim, history, bystander)? {
                        return Ok(Some(work));
                    }
                }
                Answer::Finished => {
                    bystander.finished();
                    return Ok(None);
                }
                Answer::Nothing | Answer::Ask(_) => {
                    if !bystander.rest() {
                        return Ok(None);
                    }
                    gone = bystander.lost(leased.timeout);
                }
            }
        }
    }

    /// A job was run as far as it could be. Of one that failed for good no rank takes more.
    pub fn after(&self, work: &Work) {
        if let Some(leases) = self.leases(work) {
            leases.give_up(work.job.index);
        }
    }
}

impl Leased {
    /// What is to be run for a claim, if any of it is left.
    fn take(
        &mut self,
        claim: &Claim,
        history: &mut History,
        bystander: &mut dyn Bystander,
    ) -> Result<Option<Work>, String> {
        let Some(work) = self.works.get(&claim.job) else { return Ok(None) };
        if claim.is_taken_over || self.begun.contains(&claim.job) {
            *history = bystander.history()?;
        }
        if claim.is_taken_over {
            bystander.say(&format!("{}: takes over what another rank has left", work.job.name));
        }
        self.begun.insert(claim.job);
        let about = history.about(claim.job);
        let done = report::done(about).remove(&claim.job).unwrap_or_default();
        let is_left = self.leases.hold(claim, work, self.cut.is_in_blocks(&work.job), &done);
        Ok(is_left.then(|| work.clone()))
    }
}
