//! Ends a run as soon as a sequential test has decided (`--stop-when`).
//!
//! ```text
//! rank 1 ── batch ──┐
//! rank 2 ── batch ──┴─► store: one list ──► rank 0: SequentialComparison
//!    ▲                     ▲                    │ a round decides
//!    │                     └───── decided ──────┘
//!    └── begins no more ◄──┘
//! ```
//! Every rank publishes the outcomes of its episodes, every tenth of a second and at least with
//! every heartbeat. All ranks append to one list, so that rank 0, which reads between the steps of
//! its environments, needs a few requests however many ranks there are. Only rank 0 reads the
//! reference and looks at the rounds. The store carries the outcomes because the journals of other
//! nodes may not be visible. A rank that is restarted publishes its journal again, and rank 0 reads
//! all batches again; what is there twice counts once.

mod batch;

use std::time::{Duration, Instant, SystemTime};

use jobs::episode::Episode;
use jobs::journal::{Decision, Line};
use jobs::time::rfc3339;
use report::compare::sequential::SequentialComparison;
use report::tables;

use crate::eval::monitor::early_stop::batch::{OUTCOMES, Outcome, publish};
use crate::eval::monitor::stop::StopRequest;
use crate::eval::numbered_list::ListReader;
use tcpstore::{Store, StoreError};

/// Interval of exchanges when episodes end, for one rank; each further rank adds a millisecond, so
/// that the store gets a thousand batches a second at most.
const PERIOD: Duration = Duration::from_millis(100);

/// Time that the other ranks wait for rank 0 to judge what the journals have, so that they do not
/// start on a run that is decided. Without an answer they start.
const JUDGED: Duration = Duration::from_secs(120);

/// The key that is there when the run has been decided.
const DECIDED: &str = "decided";

/// The part of a rank in the decision whether the run ends early.
pub struct EarlyStop {
    rank: usize,
    stop: StopRequest,
    /// Outcomes of this rank that are not in the store yet.
    unsent: Vec<Outcome>,
    judge: Option<Judge>,
    /// Interval of exchanges when episodes end.
    period: Duration,
    /// When outcomes were last exchanged.
    exchanged: Option<Instant>,
}

/// The part of rank 0.
struct Judge {
    comparison: SequentialComparison,
    batches: ListReader,
}

impl EarlyStop {
    /// Creates the part of a rank; rank 0 has the `comparison`.
    pub fn new(
        rank: usize,
        world_size: usize,
        stop: StopRequest,
        comparison: Option<SequentialComparison>,
    ) -> Self {
        let judge = |comparison| Judge {
            comparison,
            batches: ListReader::new(OUTCOMES),
        };
        Self {
            rank,
            stop,
            unsent: Vec::new(),
            judge: comparison.map(judge),
            period: PERIOD + Duration::from_millis(world_size as u64),
            exchanged: None,
        }
    }

    /// Returns whether outcomes should be exchanged when an episode ends at `now`.
    pub fn is_due(&self, now: Instant) -> bool {
        let is_over = |then: Instant| now.saturating_duration_since(then) >= self.period;
        self.exchanged.is_none_or(is_over)
    }

    /// Takes note of an exchange.
    pub fn exchanged(&mut self, now: Instant) {
        self.exchanged = Some(now);
    }

    /// Judges what the journals have before any rank starts an episode; returns a message as
    /// [`EarlyStop::exchange`] does. The other ranks wait for rank 0.
    pub fn begin(&mut self, lines: &[Line], store: Option<&Store>) -> Option<String> {
        for line in lines {
            let Line::Episode(episode) = line else {
                continue;
            };
            let outcome = Outcome::of(episode);
            if episode.rank == self.rank {
                self.unsent.push(outcome);
            }
            if let Some(judge) = &mut self.judge {
                judge.add(outcome);
            }
        }
        let decided = self.exchange(store);
        let Some(store) = store else { return decided };
        if self.judge.is_some() {
            // If this fails, the other ranks start after a time limit.
            let _ = store.set("judged", b"");
        } else if store.wait("judged", JUDGED).is_ok() {
            self.exchange(Some(store));
        }
        decided
    }

    /// Takes note of an episode of this rank that is in the journal.
    pub fn ended(&mut self, episode: &Episode) {
        let outcome = Outcome::of(episode);
        self.unsent.push(outcome);
        if let Some(judge) = &mut self.judge {
            judge.add(outcome);
        }
    }

    /// Publishes what has ended, and looks whether there is a decision. Errors are ignored: what
    /// was not published is published with the next call. Returns a message for the user when this
    /// rank decides.
    pub fn exchange(&mut self, store: Option<&Store>) -> Option<String> {
        let decided = match (&mut self.judge, store) {
            (None, Some(store)) => {
                if let Err(err) = publish(store, &mut self.unsent) {
                    tracing::debug!(%err, "cannot publish outcomes");
                }
                store.check(DECIDED).unwrap_or(false)
            }
            (None, None) => false,
            (Some(judge), store) => {
                self.unsent.clear();
                if let Some(Err(err)) = store.map(|store| judge.read(store)) {
                    tracing::debug!(%err, "cannot read the outcomes of other ranks");
                }
                judge.comparison.look()
            }
        };
        if !decided || self.stop.is_decided() {
            return None;
        }
        self.stop.decide();
        if let (Some(_), Some(store)) = (&self.judge, store) {
            // If this fails, the other ranks run their work to the end.
            let _ = store.set(DECIDED, b"");
        }
        let decision = self.decision()?;
        Some(tables::decision(&decision))
    }

    /// Returns a table of the reference beside this run; `None` on other ranks than rank 0.
    pub fn table(&self) -> Option<String> {
        Some(self.judge.as_ref()?.comparison.table())
    }

    /// Returns the result so far; `None` on other ranks than rank 0.
    pub fn decision(&self) -> Option<Decision> {
        let judge = self.judge.as_ref()?;
        let at = rfc3339(SystemTime::now());
        Some(judge.comparison.decision(at))
    }
}

impl Judge {
    fn add(&mut self, outcome: Outcome) {
        let Outcome {
            job,
            episode,
            solved,
        } = outcome;
        self.comparison.add(job, episode, solved);
    }

    /// Reads the batches that are new.
    fn read(&mut self, store: &Store) -> Result<(), StoreError> {
        let comparison = &mut self.comparison;
        batch::read(store, &mut self.batches, |outcome| {
            comparison.add(outcome.job, outcome.episode, outcome.solved);
        })
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
