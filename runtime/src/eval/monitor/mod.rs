//! What a rank tells and shows of its progress while it works, and what it learns about the others.
//!
//! ```text
//! rank ─► peers ── heartbeats ──► store ──► peers of rank 0 ─► view ─┬─► progress (terminal)
//!           ▲                                                        ├─► exporter (Prometheus)
//!           │                                                        └─► tracking (TensorBoard, …)
//!           └── meter: memory and GPU, once a second
//! ```
//! A [`Monitor`] has all of it. It belongs to the [`crate::eval::ledger::Ledger`] of the rank,
//! which tells it of every heartbeat and of every episode that is on the disk.
//!
//! * `heartbeat`: what a rank publishes; who is silent for too long.
//! * `peers`: heartbeats through the store, the barrier at the end, the end of all ranks.
//! * `pulse`: tells the launcher of this node how far the rank is.
//! * `pace`, `overview`: with thousands of ranks, who reads the heartbeats, and how often they come.
//! * `tally`: what was done before this launch. `view`: rates, time left and remarks of the run.
//! * `progress`, `exporter`: show the view to people and to Prometheus.
//! * `tracking`: logs the view to experiment trackers.
//! * `early_stop`: a sequential test on rank 0 ends the run when it has decided.
//! * `meter`: memory of the environments, and how busy the GPU is.
//! * `orders`: what a user asks on the page of the run.
//! * `stop`: whether a signal or another rank asks this one to end.

#[cfg(test)]
pub mod cable;
pub mod early_stop;
pub mod exporter;
pub mod heartbeat;
pub mod meter;
pub mod orders;
pub mod overview;
pub mod pace;
pub mod peers;
pub mod progress;
pub mod pulse;
pub mod reader;
pub mod stop;
pub mod tally;
pub mod tracking;
pub mod view;

use std::collections::BTreeSet;

use jobs::episode::Episode;
use jobs::job::JobIndex;
use jobs::launch::LaunchLock;

use crate::clock::now;
use crate::console::{self, Level};
use crate::device::gpu;
use crate::eval::monitor::early_stop::EarlyStop;
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::monitor::meter::Meter;
use crate::eval::monitor::orders::LiveOrders;
use crate::eval::monitor::peers::RankPeers;
use crate::eval::monitor::progress::Progress;
use crate::eval::monitor::pulse::RankPulse;
use crate::eval::monitor::stop::StopRequest;

/// What a rank tells the other ranks, its launcher and the user, and what it hears of them.
pub struct Monitor {
    /// The other ranks.
    pub peers: RankPeers,
    /// What the launcher of this node knows of the progress.
    pub pulse: RankPulse,
    /// What the user sees.
    pub progress: Progress,
    /// Whether this rank has to stop.
    pub stop: StopRequest,
    /// What a user asks on the page of the run.
    pub orders: LiveOrders,
    /// Samples memory and GPU of this rank.
    pub meter: Meter,
    /// Decides whether the run ends early; `None` without `--stop-when`.
    pub early_stop: Option<EarlyStop>,
    /// Lock on the run folder if the launcher is not `rrun` and does not hold it.
    lock: Option<LaunchLock>,
    /// Topics that were already reported for all ranks.
    said: BTreeSet<&'static str>,
}

impl Monitor {
    /// Creates the monitor of a rank that has not done anything.
    pub fn new(
        peers: RankPeers,
        progress: Progress,
        stop: StopRequest,
        orders: LiveOrders,
        meter: Meter,
        lock: Option<LaunchLock>,
    ) -> Self {
        Self {
            peers,
            pulse: RankPulse::open(),
            progress,
            stop,
            orders,
            meter,
            early_stop: None,
            lock,
            said: BTreeSet::new(),
        }
    }

    /// Reports the progress of this rank, to each who is to be told now.
    pub fn on(&mut self, beat: &Heartbeat) {
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

    /// Takes note of an episode that is in the journal, on the disk.
    pub fn ended(&mut self, episode: &Episode) {
        let Some(early_stop) = &mut self.early_stop else {
            return;
        };
        early_stop.ended(episode);
        if early_stop.is_due(now()) {
            self.exchange_outcomes();
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

    /// Tells the user something once.
    pub fn say(&self, text: &str) {
        self.progress.say(text);
    }

    /// Tells the user something that several ranks and jobs may report; the user sees one message
    /// for each topic.
    pub fn say_for_all(&mut self, topic: &'static str, text: &str) {
        if self.said.insert(topic) && self.peers.is_first(topic) {
            self.progress.say(text);
        } else {
            console::log(Level::Info, text);
        }
    }

    /// Returns whether the rank is to run no more jobs.
    pub fn is_over(&self) -> bool {
        self.stop.asked() || self.stop.is_decided()
    }

    /// Returns whether no more episodes of a job are to begin: a sequential test has decided, or a
    /// user has asked for it.
    pub fn begins_no_more(&self, job: JobIndex) -> bool {
        let now = now();
        if self.orders.stop(now) {
            self.stop.decide();
        }
        self.stop.is_decided() || self.orders.forbid(job, now)
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

#[cfg(test)]
impl Monitor {
    /// Returns the monitor of a rank without others.
    pub fn alone() -> Self {
        let env = jobs::rank_env::RankEnv::read(|_| None).unwrap();
        let folder = jobs::layout::RunFolder::new("out".as_ref());
        Self::new(
            RankPeers::meet(&env).unwrap(),
            Progress::new(&env),
            StopRequest::default(),
            LiveOrders::new(&folder, None, false),
            Meter::start(tch::Device::Cpu).unwrap(),
            None,
        )
    }
}
