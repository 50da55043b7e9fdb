//! What a rank does while it waits for leases.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::monitor::stop::StopRequest;
use crate::eval::rank::history::JournalHistory;
use crate::eval::rank::observers::Observers;
use crate::eval::rollout::recording::episode_log::JobObserver;
use crate::eval::setup::rank_setup::RankSetup;
use crate::eval::stop::Stop;

/// A rank that waits for leases.
pub struct IdleRank<'r, 'a> {
    /// Its setup, which names the journals.
    pub setup: &'r RankSetup,
    /// Who is told that it waits.
    pub observers: &'r mut Observers<'a>,
    /// Tells whether it has to stop.
    pub stop: &'r StopRequest,
    /// Its last heartbeat.
    pub last: &'r Heartbeat,
}

impl IdleRank<'_, '_> {
    /// Publishes that this rank is idle and waits a moment for the leases of a stage; returns false
    /// if the rank is to run no more.
    pub fn rest(&mut self, stage: usize) -> bool {
        self.observers.on(&Heartbeat {
            arrived: true,
            ..self.last.clone()
        });
        self.observers.peers.rest(stage);
        !self.is_over()
    }

    /// Returns whether the rank is to run no more.
    pub fn is_over(&self) -> bool {
        self.stop.asked() || self.stop.is_decided()
    }

    /// Returns the ranks that do not come back, or have made no progress for `timeout`.
    pub fn lost(&mut self, timeout: Duration) -> BTreeSet<usize> {
        self.observers.peers.lost(timeout).into_iter().collect()
    }

    /// Reads the journals again.
    ///
    /// # Errors
    /// Returns a [`Stop`] if they cannot be read; the history is then empty.
    pub fn refresh(&self, history: &mut JournalHistory) -> Result<(), Stop> {
        history.refresh(self.setup, &self.observers.progress)
    }

    /// Tells the other ranks that all leases of a stage are done.
    pub fn finished(&self, stage: usize) {
        self.observers.peers.leased(stage);
    }

    /// Tells the user something.
    pub fn say(&self, text: &str) {
        self.observers.progress.say(text);
    }
}
