//! The other ranks and the user: the observers of every step.

use std::collections::BTreeSet;

use jobs::episode::Episode;
use jobs::launch::LaunchLock;

use crate::clock::now;
use crate::console::{self, Level};
use crate::device::gpu;
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::monitor::meter::Meter;
use crate::eval::monitor::peers::RankPeers;
use crate::eval::monitor::progress::Progress;
use crate::eval::monitor::pulse::RankPulse;
use crate::eval::monitor::stop::StopRequest;
use crate::eval::rank::early_stop::EarlyStop;
use crate::eval::rollout::recording::episode_log::JobObserver;

/// The other ranks and the user: the observers of every step.
pub struct Observers<'a> {
    /// The other ranks.
    pub peers: RankPeers,
    /// What the launcher of this node knows of the progress.
    pub pulse: RankPulse,
    /// What the user sees.
    pub progress: Progress,
    /// Topics that were already reported for all ranks.
    said: BTreeSet<&'static str>,
    stop: StopRequest,
    /// Lock on the run folder if the launcher is not `rrun` and does not hold it.
    lock: Option<LaunchLock>,
    /// Samples memory and GPU of this rank.
    pub meter: &'a Meter,
    /// Decides whether the run ends early; `None` without `--stop-when`.
    pub early_stop: Option<EarlyStop>,
}

impl<'a> Observers<'a> {
    /// Creates the observers of a rank that has not done anything.
    pub fn new(
        peers: RankPeers,
        progress: Progress,
        stop: StopRequest,
        lock: Option<LaunchLock>,
        meter: &'a Meter,
    ) -> Self {
        Self {
            peers,
            pulse: RankPulse::open(),
            progress,
            said: BTreeSet::new(),
            stop,
            lock,
            meter,
            early_stop: None,
        }
    }

    /// Publishes the outcomes of this rank, and looks whether a sequential test has decided.
    pub fn exchange_outcomes(&mut self) {
        let Some(early_stop) = &mut self.early_stop else {
            return;
        };
        early_stop.exchanged(now());
        let decided = early_stop.exchange(self.peers.eval_store());
        if let Some(text) = decided {
            self.progress.say(&text);
        }
    }

    /// Ends the evaluation of this rank if its launch has lost the run folder.
    fn check_lock(&mut self) {
        if self.lock.as_ref().is_some_and(LaunchLock::is_lost) && self.said.insert("launch lock") {
            let reason = "the lock of this launch is gone from `launch.lock` in its run folder";
            self.progress.say(&format!("error: {reason}"));
            self.stop.call_off(reason.to_owned());
        }
    }
}

impl JobObserver for Observers<'_> {
    fn on(&mut self, beat: &Heartbeat) {
        self.progress.moved(beat);
        self.pulse.on(beat, now());
        if !self.peers.is_due() {
            return;
        }
        self.check_lock();
        let (gpu_used, gpu_total) = gpu::memory(self.meter.device()).unwrap_or_default();
        let beat = &Heartbeat {
            gpu_used,
            gpu_total,
            gpu_busy: self.meter.busy(),
            ..beat.clone()
        };
        if let Some(reason) = self.peers.tell(beat) {
            self.stop.call_off(reason);
        }
        self.exchange_outcomes();
        if self.progress.shows_all() {
            let beats: Vec<_> = self.peers.look().cloned().collect();
            self.progress.all(&beats);
        }
    }

    fn ended(&mut self, episode: &Episode) {
        let Some(early_stop) = &mut self.early_stop else {
            return;
        };
        early_stop.ended(episode);
        if early_stop.is_due(now()) {
            self.exchange_outcomes();
        }
    }

    fn say(&mut self, text: &str) {
        self.progress.say(text);
    }

    fn say_for_all(&mut self, topic: &'static str, text: &str) {
        if self.said.insert(topic) && self.peers.is_first(topic) {
            self.progress.say(text);
        } else {
            console::log(Level::Info, text);
        }
    }
}
