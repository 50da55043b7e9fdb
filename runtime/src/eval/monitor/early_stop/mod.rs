//! Ends a run as soon as a sequential test has decided (`--stop-when`).
//!
//! ```text
//! rank 1 ── outcomes/1.<pid>/<n>, then their number in its heartbeat ──┐
//! rank 2 ── … ─────────────────────────────────────────────────────────┴─► rank 0: SequentialComparison
//!    ▲                                                                      │ a round decides
//!    └── begins no more ◄──────────────────── decided ◄─────────────────────┘
//! ```
//! A rank whose episodes end publishes their outcomes and its heartbeat every tenth of a second, so
//! that rank 0, which reads between the steps of its environments, needs a few requests however
//! many ranks there are. Only rank 0 reads the reference and looks at the rounds. The store carries
//! the outcomes because the journals of other nodes may not be visible. A rank that is restarted
//! publishes its journal again, and rank 0 reads all batches again; what is there twice counts
//! once.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use jobs::episode::Episode;
use jobs::job::JobIndex;
use jobs::journal::{Decision, Line};
use jobs::time::rfc3339;
use report::compare::sequential::SequentialComparison;
use serde::{Deserialize, Serialize};
use tcpstore::{Store, StoreError};

use crate::eval::monitor::beat::Beat;

/// Interval of heartbeats when episodes end, for one rank; each further rank adds a millisecond, so
/// that the store gets a thousand batches a second at most.
const PERIOD: Duration = Duration::from_millis(100);

/// Time that the other ranks wait for rank 0 to judge what the journals have, so that they do not
/// start on a run that is decided. Without an answer they start.
const JUDGED: Duration = Duration::from_secs(120);

/// The key that is there when the run has been decided.
const DECIDED: &str = "decided";

/// Number of outcomes in a batch, at most: some 20 KB.
const BATCH: usize = 1000;

/// Batches of one rank that rank 0 looks for at a time: anybody may write a heartbeat.
const MOST: u64 = 1000;

/// The part of a rank in the decision whether the run ends early.
pub struct EarlyStop {
    rank: usize,
    /// Only on rank 0.
    judge: Option<SequentialComparison>,
    /// Number of batches that rank 0 has read of a rank, by its number and PID.
    read: BTreeMap<(usize, u32), u64>,
    /// Outcomes of this rank that are not in the store yet.
    unsent: Vec<Outcome>,
    /// Whether an episode has ended since the last look.
    has_news: bool,
    period: Duration,
}

/// How an episode ended: its job, its number, and whether it was solved, `None` after an error.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Outcome(JobIndex, u64, Option<bool>);

impl EarlyStop {
    /// Creates the part of a rank; rank 0 has the comparison.
    pub fn new(rank: usize, world_size: usize, judge: Option<SequentialComparison>) -> Self {
        Self {
            rank,
            judge,
            read: BTreeMap::new(),
            unsent: Vec::new(),
            has_news: false,
            period: PERIOD + Duration::from_millis(world_size as u64),
        }
    }

    /// Returns the longest time between two heartbeats: short if there are outcomes to tell.
    pub fn pace(&self, usual: Duration) -> Duration {
        if self.has_news {
            usual.min(self.period)
        } else {
            usual
        }
    }

    /// Takes note of what the journals have before any rank starts an episode.
    pub fn begin(&mut self, lines: &[Line]) {
        for line in lines {
            if let Line::Episode(episode) = line {
                self.add(episode);
            }
        }
    }

    /// Takes note of an episode that is in the journal of this rank, or on rank 0 in any.
    pub fn add(&mut self, episode: &Episode) {
        self.has_news = true;
        let is_solved = episode.success == Some(true);
        let solved = episode.error.is_none().then_some(is_solved);
        let outcome = Outcome(episode.job_index, episode.episode, solved);
        match &mut self.judge {
            Some(judge) => judge.add(outcome.0, outcome.1, outcome.2),
            None if episode.rank == self.rank => self.unsent.push(outcome),
            None => {}
        }
    }

    /// Publishes what has ended, and counts the batches in `beat`. Errors are ignored: what was not
    /// published is published with the next call.
    pub fn publish(&mut self, store: &Store, beat: &mut Beat) {
        self.has_news = false;
        beat.batches.0 = std::process::id();
        while !self.unsent.is_empty() {
            let sent = self.unsent.len().min(BATCH);
            let text = serde_json::to_vec(&self.unsent[..sent]).expect("an outcome has no map");
            let key = batch_key(self.rank, beat.batches.0, beat.batches.1);
            // A set has no answer.
            let is_there = store.set(&key, &text).and_then(|()| store.check(&key));
            if !is_there.unwrap_or(false) {
                tracing::debug!("cannot publish outcomes");
                return;
            }
            self.unsent.drain(..sent);
            beat.batches.1 += 1;
        }
    }

    /// Returns whether there is a decision. Rank 0 reads the batches of the others before, and
    /// tells them.
    pub fn decides<'b>(
        &mut self,
        store: Option<&Store>,
        beats: impl Iterator<Item = &'b Beat>,
    ) -> bool {
        if self.judge.is_none() {
            return store.is_some_and(|store| store.check(DECIDED).unwrap_or(false));
        }
        self.has_news = false;
        if let Some(Err(err)) = store.map(|store| self.read(store, beats)) {
            tracing::debug!(%err, "cannot read the outcomes of other ranks");
        }
        let is_decided = self.judge.as_mut().is_some_and(SequentialComparison::look);
        if let Some(store) = store.filter(|_| is_decided) {
            // If this fails, the other ranks run their work to the end.
            let _ = store.set(DECIDED, b"");
        }
        is_decided
    }

    /// Makes the other ranks wait until rank 0 has judged what the journals have.
    pub fn meet(&self, store: &Store) {
        // If this fails, the other ranks start after a time limit.
        let _ = match &self.judge {
            Some(_) => store.set("judged", b""),
            None => store.wait("judged", JUDGED),
        };
    }

    /// Returns a table of the reference beside this run; `None` on other ranks than rank 0.
    pub fn table(&self) -> Option<String> {
        Some(self.judge.as_ref()?.table())
    }

    /// Returns the result so far; `None` on other ranks than rank 0.
    pub fn decision(&self) -> Option<Decision> {
        Some(self.judge.as_ref()?.decision(rfc3339(SystemTime::now())))
    }

    /// Reads the batches that are new.
    fn read<'b>(
        &mut self,
        store: &Store,
        beats: impl Iterator<Item = &'b Beat>,
    ) -> Result<(), StoreError> {
        let mut new = Vec::new();
        for (rank, Beat { batches, .. }) in beats.enumerate() {
            let read = self.read.get(&(rank, batches.0)).copied().unwrap_or(0);
            let told = batches.1.min(read.saturating_add(MOST));
            new.extend((read..told).map(|number| (rank, batches.0, number)));
        }
        let keys: Vec<_> = new.iter().map(|it| batch_key(it.0, it.1, it.2)).collect();
        for ((rank, pid, number), batch) in new.into_iter().zip(store.multi_get(&keys)?) {
            let batch: Vec<Outcome> = serde_json::from_slice(&batch).unwrap_or_default();
            let judge = self.judge.iter_mut();
            judge.for_each(|judge| batch.iter().for_each(|it| judge.add(it.0, it.1, it.2)));
            self.read.insert((rank, pid), number + 1);
        }
        Ok(())
    }
}

fn batch_key(rank: usize, pid: u32, number: u64) -> String {
    format!("outcomes/{rank}.{pid}/{number}")
}

#[cfg(test)]
mod tests;
