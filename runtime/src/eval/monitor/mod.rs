//! What a rank tells and shows of its progress while it works, and what it learns about the others.
//!
//! ```text
//! job ── Event ──► Beat ─┬─► pulse ─► launcher        ┌─► screen (terminal)
//!                        ├─► screen                   ├─► exporter (Prometheus)
//!                        └─► peers ─► store ─► board ─┴─► tracking (TensorBoard, …)
//! ```
//! Jobs say what happened. A [`Monitor`] folds it into a [`Beat`], and [`Monitor::tick`] lets each
//! part read the beat when its time has come. It belongs to the [`crate::eval::ledger::Ledger`].
//!
//! * `beat`: the state of a rank, also that at the start of a launch.
//! * `pulse`: tells the launcher of this node how far the rank is.
//! * `screen`: lines and the table for people.
//! * `peers`: heartbeats through the store, the barrier at the end, the end of all ranks.
//! * [`Board`], on rank 0: shows the heartbeats of all as a `view` (rates, time left, remarks), by
//!   `exporter` to Prometheus and by `tracking` to experiment trackers.
//! * `early_stop`: a sequential test on rank 0 ends the run when it has decided.
//! * `meter`: memory of the environments, and how busy the GPU is.
//! * `stop`: whether a signal, another rank or a user on the page asks this one to end.

pub mod beat;
pub mod early_stop;
pub mod exporter;
pub mod meter;
pub mod peers;
pub mod pulse;
pub mod screen;
pub mod stop;
pub mod tracking;
pub mod view;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jobs::episode::Episode;
use jobs::job::JobIndex;
use jobs::journal::Line;
use jobs::launch::LaunchLock;
use report::tables;

use crate::clock::now;
use crate::console::{self, Level};
use crate::device::gpu;
use crate::eval::monitor::beat::Beat;
use crate::eval::monitor::early_stop::EarlyStop;
use crate::eval::monitor::exporter::Exporter;
use crate::eval::monitor::meter::Meter;
use crate::eval::monitor::peers::Peers;
use crate::eval::monitor::pulse::RankPulse;
use crate::eval::monitor::screen::Screen;
use crate::eval::monitor::stop::{LiveOrders, StopRequest};
use crate::eval::monitor::tracking::Tracking;
use crate::eval::monitor::view::RunView;

/// What happened in this rank.
pub enum Event<'a> {
    /// An attempt at a job begins, of which this rank has `done` episodes already.
    Job {
        /// Name of the job.
        name: &'a str,
        /// Number of finished episodes.
        done: u64,
        /// Number of those that were successful.
        solved: u64,
    },
    /// The job has so many episodes for this rank.
    Planned(u64),
    /// An environment or the policy has answered.
    Answered,
    /// So many environments take a step.
    Stepped(u64),
    /// No answers are to be expected for now.
    Between,
    /// The attempt has simulated and inferred for so long.
    Worked([Duration; 2]),
    /// An episode is in the journal, on the disk.
    Ended(&'a Episode),
    /// The attempt has ended and took so long.
    AttemptEnded(Duration),
    /// The job is over for this rank.
    JobDone,
    /// There is nothing to do now: other ranks have what is left, or nothing is left.
    Resting,
}

/// What a rank tells the other ranks, its launcher and the user, and what it hears of them.
pub struct Monitor {
    /// The state of this rank.
    pub beat: Beat,
    /// The other ranks.
    pub peers: Peers,
    /// What the user sees of this rank.
    pub screen: Screen,
    /// Whether this rank has to stop.
    pub stop: StopRequest,
    /// What a user asks on the page of the run.
    pub orders: LiveOrders,
    /// Samples memory and GPU of this rank.
    pub meter: Meter,
    /// Decides whether the run ends early; `None` without `--stop-when`.
    pub early_stop: Option<EarlyStop>,
    /// Shows the whole run; only on rank 0.
    pub board: Option<Board>,
    pulse: RankPulse,
    /// Lock on the run folder if the launcher is not `rrun` and does not hold it.
    lock: Option<LaunchLock>,
    /// Topics that were already reported for all ranks.
    said: BTreeSet<&'static str>,
    told: Every,
    /// When lock and card were looked at.
    looked: Every,
    /// Seconds of simulation and inference before the attempt that is under way.
    before_s: [f64; 2],
}

/// Where the state of the whole run is shown.
pub struct Board {
    /// The state of the whole run.
    pub view: RunView,
    /// Serves it to Prometheus; `None` without a port.
    pub exporter: Option<Exporter>,
    /// Sends it to experiment trackers; `None` without one.
    pub tracking: Option<Tracking>,
}

/// Something that is done now and then.
#[derive(Debug, Default)]
pub struct Every(Option<Instant>);

impl Every {
    /// Returns whether it is to be done now, `period` after the last time.
    pub fn due(&mut self, period: Duration, now: Instant) -> bool {
        let since = |last| now.saturating_duration_since(last);
        let is_due = self.0.is_none_or(|last| since(last) >= period);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

impl Monitor {
    /// Creates the monitor of a rank that has not done anything.
    pub fn new(
        peers: Peers,
        screen: Screen,
        stop: StopRequest,
        orders: LiveOrders,
        meter: Meter,
        lock: Option<LaunchLock>,
    ) -> Self {
        Self {
            beat: Beat::default(),
            peers,
            screen,
            stop,
            orders,
            meter,
            early_stop: None,
            board: None,
            pulse: RankPulse::open(),
            lock,
            said: BTreeSet::new(),
            told: Every::default(),
            looked: Every::default(),
            before_s: [0.0; 2],
        }
    }

    /// Takes note of what happened.
    pub fn on(&mut self, event: Event<'_>) {
        let beat = &mut self.beat;
        match event {
            Event::Job { name, done, solved } => {
                self.before_s = [beat.sim_s, beat.infer_s];
                (beat.job, beat.of) = (name.to_owned(), 0);
                (beat.done, beat.solved) = (done, solved);
                (beat.is_stepping, beat.arrived) = (false, false);
            }
            Event::Planned(of) => beat.of = of,
            Event::Answered => (beat.moves, beat.is_stepping) = (beat.moves + 1, true),
            Event::Stepped(count) => beat.steps += count,
            Event::Between => beat.is_stepping = false,
            Event::Worked([sim, infer]) => {
                beat.sim_s = self.before_s[0] + sim.as_secs_f64();
                beat.infer_s = self.before_s[1] + infer.as_secs_f64();
            }
            Event::Ended(episode) => {
                beat.count(episode);
                let early_stop = self.early_stop.iter_mut();
                early_stop.for_each(|early_stop| early_stop.add(episode));
            }
            Event::AttemptEnded(took) => self.screen.attempt_ended(beat, took),
            Event::JobDone => beat.jobs_done += 1,
            Event::Resting => beat.arrived = true,
        }
    }

    /// Reports the state of this rank to each who is to be told now, and hears of the others.
    pub fn tick(&mut self) {
        let now = now();
        self.screen.moved(&self.beat, now);
        self.pulse.on(&self.beat, now);
        let usual = self.peers.every;
        let pace = self.early_stop.as_ref().map(|it| it.pace(usual));
        if !self.told.due(pace.unwrap_or(usual), now) {
            return;
        }
        // Outcomes may be told ten times as often; lock and card need no more than the usual pace.
        if self.looked.due(usual, now) {
            self.check_lock();
            let memory = gpu::memory(self.meter.device());
            (self.beat.gpu_used, self.beat.gpu_total) = memory.unwrap_or_default();
            self.beat.gpu_busy = self.meter.busy();
        }
        self.publish_outcomes();
        if let Some(reason) = self.peers.tell(&self.beat) {
            self.stop.call_off(reason);
        }
        if self.board.is_some() {
            self.peers.read();
        }
        self.look();
    }

    /// Looks at what the other ranks have told.
    pub fn look(&mut self) {
        let Self { board, stop, .. } = self;
        look(
            &mut self.early_stop,
            board,
            &self.peers,
            &mut self.screen,
            stop,
        );
    }

    /// Judges what the journals have, before any rank starts an episode.
    pub fn begin_early_stop(&mut self, mut early_stop: EarlyStop, lines: &[Line]) {
        early_stop.begin(lines);
        self.early_stop = Some(early_stop);
        self.publish_outcomes();
        self.peers.read();
        self.look();
        if let (Some(early_stop), Some(store)) = (&self.early_stop, &self.peers.eval_store) {
            early_stop.meet(store);
            self.look();
        }
    }

    /// Waits until every rank has arrived or has made no progress for `timeout`, or this one is
    /// told to stop. Returns the lost ranks.
    pub fn wait_for_all(&mut self, timeout: Duration) -> Vec<usize> {
        self.on(Event::Resting);
        self.publish_outcomes();
        let Self { screen, stop, .. } = self;
        self.peers.wait_for_all(&self.beat, timeout, |peers| {
            self.pulse.on(&self.beat, now());
            look(&mut self.early_stop, &mut self.board, peers, screen, stop);
            stop.asked()
        })
    }

    /// Waits for the report of rank 0 before this rank exits with an error, because its exit makes
    /// the launcher stop the others. After the time limit it exits anyway.
    pub fn wait_for_report(&mut self, timeout: Duration) {
        let began = now();
        while began.elapsed() < timeout && self.peers.wait_briefly_for_report() {
            self.pulse.on(&self.beat, now());
        }
    }

    fn publish_outcomes(&mut self) {
        if let (Some(early_stop), Some(store)) = (&mut self.early_stop, &self.peers.eval_store) {
            early_stop.publish(store, &mut self.beat);
        }
    }

    /// Tells the user something once.
    pub fn say(&self, text: &str) {
        self.screen.say(text);
    }

    /// Tells the user something that several ranks and jobs may report; the user sees one message
    /// for each topic.
    pub fn say_for_all(&mut self, topic: &'static str, text: &str) {
        if self.said.insert(topic) && self.peers.is_first(topic) {
            self.screen.say(text);
        } else {
            console::log(Level::Info, text);
        }
    }

    /// Returns whether the rank is to run no more jobs.
    pub fn is_over(&self) -> bool {
        self.stop.asked() || self.stop.is_decided
    }

    /// Returns whether no more episodes of a job are to begin: a sequential test has decided, or a
    /// user has asked for it.
    pub fn begins_no_more(&mut self, job: JobIndex) -> bool {
        let orders = self.orders.at(now());
        self.stop.is_decided |= orders.stop;
        self.stop.is_decided || !orders.allows(job)
    }

    /// Ends the evaluation of this rank if its launch has lost the run folder.
    fn check_lock(&mut self) {
        if self.lock.take_if(|lock| lock.is_lost()).is_some() {
            let reason = "the lock of this launch is gone from `launch.lock` in its run folder";
            self.screen.say(&format!("error: {reason}"));
            self.stop.call_off(reason.to_owned());
        }
    }
}

/// Looks whether a sequential test has decided, and shows the whole run on rank 0.
fn look(
    early_stop: &mut Option<EarlyStop>,
    board: &mut Option<Board>,
    peers: &Peers,
    screen: &mut Screen,
    stop: &mut StopRequest,
) {
    if let Some(early_stop) = early_stop
        && early_stop.decides(peers.eval_store.as_ref(), peers.beats())
        && !std::mem::replace(&mut stop.is_decided, true)
        && let Some(decision) = early_stop.decision()
    {
        screen.say(&tables::decision(&decision));
    }
    let Some(board) = board else { return };
    let now = now();
    let snapshot = board.view.on(peers.beats(), now);
    if let Some(exporter) = &board.exporter {
        exporter.show(&snapshot);
    }
    let tracking = board.tracking.as_mut();
    let notes = tracking.map(|tracking| tracking.on(&snapshot, now));
    notes.iter().flatten().for_each(|note| screen.say(note));
    screen.show(&snapshot, now);
}
