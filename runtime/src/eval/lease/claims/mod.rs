//! The operations of leases in the store, on a connection of their own.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use jobs::assign::lease::{
    self, Claimer, Hold, LeaseHolder, LeaseKey, LeaseOp, LeaseReply, LeasedJob, NextStep, Want,
};
use jobs::job::JobIndex;
use tcpstore::{Deadline, Store, StoreAddr, StoreError};

use crate::eval::lease::LeaseError;

/// Time limit for the first connection to the store.
const CONNECT: Duration = Duration::from_secs(60);

/// Time limit for the answer to a request, after which the connection is taken for dead. The
/// simulation stands still as long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time limit of one attempt to reconnect.
const MEND_LIMIT: Duration = Duration::from_secs(5);

/// Time in which an operation has to succeed, with all attempts to reconnect: a launcher that is
/// started anew, and a machine that is busy, take some seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Pause between two attempts to reconnect.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the leases are stored.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// Address of the store.
    pub addr: StoreAddr,
    /// Prefix of every key: launch and round.
    pub prefix: String,
    /// The rank that claims leases.
    pub rank: usize,
}

/// The claims of a rank. Every call ends within some time limits of [`LIMIT`].
pub struct Claims {
    config: LeaseConfig,
    store: Store,
    claimer: Claimer,
}

impl Claims {
    /// Connects to the store and counts this life of the rank (its first start or a restart).
    ///
    /// # Errors
    /// Returns a [`LeaseError`] if the store cannot be reached.
    pub fn start(
        config: LeaseConfig,
        tasks: Vec<LeasedJob>,
    ) -> Result<(Self, LeaseHolder), LeaseError> {
        let store = config.enter(CONNECT)?;
        let rank = config.rank;
        let life = store.add(&LeaseKey::Life(rank).to_string(), 1)?;
        let me = LeaseHolder {
            rank,
            life,
            mark: 0,
        };
        let claimer = Claimer::new(me, tasks);
        let claims = Self {
            config,
            store,
            claimer,
        };
        Ok((claims, me))
    }

    /// Claims the next block; see [`Claimer::start`].
    ///
    /// # Errors
    /// Returns a [`LeaseError`] if the store is gone or does not answer.
    pub fn claim(&mut self, want: Want, gone: BTreeSet<usize>) -> Result<NextStep, LeaseError> {
        let mut answer = self.claimer.start(want, gone);
        while let NextStep::Ask(op) = answer {
            let reply = self.reply(&op)?;
            answer = self.claimer.on(reply);
        }
        Ok(answer)
    }

    /// Marks a lease before an episode is written; returns `None` if another rank has taken it
    /// over.
    ///
    /// # Errors
    /// Returns the same errors as [`Claims::claim`].
    pub fn mark(
        &mut self,
        holder: LeaseHolder,
        job: JobIndex,
        block: usize,
    ) -> Result<Option<LeaseHolder>, LeaseError> {
        let (op, marked) = lease::mark(holder, job, block);
        Ok((self.reply(&op)? == LeaseReply::Is(Hold::By(marked))).then_some(marked))
    }

    /// Reports that all episodes of a block are written.
    pub fn done(&mut self, holder: LeaseHolder, job: JobIndex, block: usize) {
        let [lease, closed] = lease::done(holder, job, block);
        if self.tell(&lease) == Some(LeaseReply::Is(Hold::Done(holder))) {
            self.tell(&closed);
        }
    }

    /// Reports that the rank begins (1) or leaves (-1) a job.
    pub fn helps(&mut self, job: JobIndex, delta: i64) {
        self.tell(&LeaseOp::Add(LeaseKey::Helpers(job), delta));
    }

    /// Closes a job for all ranks.
    pub fn shut(&mut self, job: JobIndex) {
        for op in lease::shut(job) {
            self.tell(&op);
        }
    }

    /// Makes an operation whose result does not matter. If it is lost, other ranks find the
    /// episodes in the journals.
    fn tell(&mut self, op: &LeaseOp) -> Option<LeaseReply> {
        self.reply(op)
            .inspect_err(|err| tracing::warn!(%err, ?op, "a lease is not told"))
            .ok()
    }

    /// Makes an operation, and reconnects if the connection breaks. The store may have applied it
    /// before the connection broke. That does no harm to a swap, which sees its own result, or to
    /// `next`, where a skipped number is found by the search for free leases. A block that is
    /// counted twice in `closed` would hide another, so that operation is not repeated.
    fn reply(&mut self, op: &LeaseOp) -> Result<LeaseReply, LeaseError> {
        let until = Deadline::after(LIMIT);
        let is_repeatable = !matches!(op, LeaseOp::Add(LeaseKey::Closed(_), 1..));
        loop {
            let failed = match ask(&self.store, op) {
                Err(Failed::Store(err)) if err.is_lost() && is_repeatable => err,
                Err(Failed::Store(err)) => return Err(err.into()),
                Err(Failed::Spoilt(reason)) => return Err(LeaseError(reason)),
                Ok(reply) => return Ok(reply),
            };
            tracing::warn!(err = %failed, "connects to the store again");
            loop {
                if until.left().is_zero() {
                    return Err(failed.into());
                }
                match self.config.enter(MEND_LIMIT.min(until.left())) {
                    Ok(store) => {
                        self.store = store;
                        break;
                    }
                    Err(_) => rest(),
                }
            }
        }
    }
}

/// The reason why an operation has no result.
enum Failed {
    Store(StoreError),
    /// A value that no rank writes.
    Spoilt(String),
}

impl From<StoreError> for Failed {
    fn from(err: StoreError) -> Self {
        Self::Store(err)
    }
}

fn ask(store: &Store, op: &LeaseOp) -> Result<LeaseReply, Failed> {
    Ok(match op {
        LeaseOp::Add(key, delta) => LeaseReply::Sum(store.add(&key.to_string(), *delta)?),
        LeaseOp::Swap(key, from, to) => {
            let (name, from, to) = (key.to_string(), from.to_string(), to.to_string());
            let found = store.compare_set(&name, from.as_bytes(), to.as_bytes())?;
            LeaseReply::Is(hold(*key, &found)?)
        }
        LeaseOp::Sums(keys) => {
            let sum = |text: &Option<Vec<u8>>| text.as_deref().map_or(0, number);
            LeaseReply::Sums(store.find(&names(keys))?.iter().map(sum).collect())
        }
        LeaseOp::Holds(keys) => {
            let found = store.find(&names(keys))?;
            let read = |(key, text): (&LeaseKey, &Option<Vec<u8>>)| {
                hold(*key, text.as_deref().unwrap_or_default())
            };
            LeaseReply::Holds(
                keys.iter()
                    .zip(&found)
                    .map(read)
                    .collect::<Result<_, _>>()?,
            )
        }
        LeaseOp::AreThere(keys) => LeaseReply::AreThere(store.check_all(&names(keys))?),
    })
}

fn names(keys: &[LeaseKey]) -> Vec<String> {
    keys.iter().map(LeaseKey::to_string).collect()
}

/// Returns the value of a counter, which the store has as text.
fn number(text: &[u8]) -> i64 {
    let text = str::from_utf8(text).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn hold(key: LeaseKey, text: &[u8]) -> Result<Hold, Failed> {
    let text = String::from_utf8_lossy(text);
    text.parse()
        .map_err(|what| Failed::Spoilt(format!("{key}: {what}")))
}

impl LeaseConfig {
    fn enter(&self, timeout: Duration) -> Result<Store, StoreError> {
        // A server may count the ranks that connect, and this rank is counted already: it must not
        // be counted again.
        let store = Store::connect(&self.addr, 0, false, timeout)?;
        Ok(store.prefix(&self.prefix).answering_within(PATIENCE))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when the store is there again"
)]
fn rest() {
    thread::sleep(PAUSE);
}
