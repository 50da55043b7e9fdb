//! The other ranks: heartbeats through the store while jobs run, and the barrier at the end.

mod reconnect;

use std::thread;
use std::time::{Duration, Instant};

use jobs::rank_env::RankEnv;

use crate::clock::now;
use crate::eval::monitor::heartbeat::{Heartbeat, Watch};
use crate::eval::monitor::overview::{Follower, Overview};
use crate::eval::monitor::pace::{is_direct, pace};
use crate::eval::monitor::peers::reconnect::Reconnect;
use crate::eval::monitor::reader::{BeatReader, BeatWriter};
use crate::eval::monitor::stop::StopRequest;
use tcpstore::{Store, StoreAddr, StoreError};

/// Time limit for the first connection to the store; the ranks of a node start within seconds of
/// each other.
const CONNECT: Duration = Duration::from_secs(60);

/// Time limit for an answer of the store. The simulation stands still as long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Consecutive attempts to reconnect at the end, when there is nothing else to do.
const MENDS: u32 = 3;

/// Time limit for a key that is there.
const ANSWER: Duration = Duration::from_secs(1);

/// Interval of what a rank does while it waits for the report.
const MEANWHILE: Duration = Duration::from_secs(1);

/// The key of the overview for ranks that wait.
const OVERVIEW: &str = "overview";

/// The other ranks, seen through the store. A single rank has no store.
pub struct RankPeers {
    rank: usize,
    world_size: usize,
    /// Part of the store's keys: `<run id>/<round>`.
    meeting: String,
    store: Option<Store>,
    /// Keys of this launch attempt only, so that a restart does not read the heartbeats of the
    /// attempt before.
    eval_store: Option<Store>,
    /// Keys under which the launcher names the ranks that it does not restart.
    losses: Option<Store>,
    watch: Watch,
    writer: BeatWriter,
    reader: BeatReader,
    /// `None` on a rank that reads the heartbeats itself.
    follower: Option<Follower>,
    /// The last overview that this rank has published as rank 0.
    overview: Overview,
    /// Interval of the heartbeats.
    every: Duration,
    told: Option<Instant>,
    /// `None` without a store.
    reconnect: Option<Reconnect>,
}

impl RankPeers {
    /// Connects to the store of this launch if there is more than one rank.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if the store cannot be reached.
    pub fn meet(env: &RankEnv) -> Result<Self, StoreError> {
        let addr = env.master.as_ref().filter(|_| env.world_size > 1);
        let addr = addr.map(|(host, port)| StoreAddr {
            host: host.clone(),
            port: *port,
        });
        let serve = env.rank == 0 && !env.agent_store;
        let store = addr
            .as_ref()
            .map(|addr| Store::connect(addr, env.world_size, serve, CONNECT))
            .transpose()?;
        let moment = now();
        let follows = env.rank != 0 && !is_direct(env.world_size);
        let mut peers = Self {
            rank: env.rank,
            world_size: env.world_size,
            meeting: format!("{}/{}", env.run_id, env.round),
            store: None,
            eval_store: None,
            losses: None,
            // Without the heartbeats of others: they would take some megabytes on each rank.
            watch: Watch::new(if follows { 0 } else { env.world_size }, moment),
            writer: BeatWriter::default(),
            reader: BeatReader::default(),
            follower: follows.then(|| Follower::new(moment)),
            overview: Overview::default(),
            every: pace(env.world_size),
            told: None,
            reconnect: addr.map(|addr| Reconnect::new(addr, env.world_size)),
        };
        peers.adopt(store);
        Ok(peers)
    }

    fn adopt(&mut self, store: Option<Store>) {
        let part = |name: &str| {
            store.as_ref().map(|store| {
                let part = store.prefix(&format!("rrun/{name}/{}", self.meeting));
                part.answering_within(PATIENCE)
            })
        };
        (self.eval_store, self.losses) = (part("eval"), part("lost"));
        self.store = store;
    }

    /// Uses the connection of an attempt to reconnect, if there is one; returns whether there is.
    fn adopt_new(&mut self, reconnected: impl FnOnce(&mut Reconnect) -> Option<Store>) -> bool {
        let store = self.reconnect.as_mut().and_then(reconnected);
        let is_there = store.is_some();
        if is_there {
            self.adopt(store);
        }
        is_there
    }

    /// Returns the store for the gather.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Returns the part of the store that belongs to this launch attempt; `None` if there are no
    /// other ranks.
    pub fn eval_store(&self) -> Option<&Store> {
        self.eval_store.as_ref()
    }

    /// Returns whether it is time for the next heartbeat: a second after the last, or later with
    /// thousands of ranks.
    pub fn is_due(&self) -> bool {
        let moment = now();
        self.told
            .is_none_or(|told| moment.saturating_duration_since(told) >= self.every)
    }

    /// Publishes this rank's heartbeat. Returns the reason if another rank has ended the
    /// evaluation.
    pub fn tell(&mut self, beat: &Heartbeat) -> Option<String> {
        let moment = now();
        self.told = Some(moment);
        self.watch.on(self.rank, beat.clone(), moment);
        self.adopt_new(Reconnect::ended);
        self.publish(beat);
        // A set has no answer: only a query shows whether the store is still there.
        match self.called_off() {
            Ok(reason) => reason,
            Err(err) if err.is_missing() => None,
            Err(_) => {
                if let Some(reconnect) = &mut self.reconnect {
                    reconnect.begin(moment);
                }
                None
            }
        }
    }

    /// Publishes a heartbeat. Errors are ignored: the evaluation itself needs no store, and if the
    /// store is gone, the launcher that serves it is gone too and its end stops this rank.
    fn publish(&mut self, beat: &Heartbeat) {
        let Some(eval_store) = &self.eval_store else {
            return;
        };
        if let Err(err) = self.writer.write(eval_store, self.rank, beat) {
            tracing::debug!(%err, "cannot publish progress");
        }
    }

    /// Ends the evaluation of the other ranks too. Without a store there are none.
    pub fn call_off(&self, reason: &str) {
        if let Some(eval_store) = &self.eval_store {
            // If this fails, the other ranks end with their own work.
            let _ = eval_store.set("off", reason.as_bytes());
        }
    }

    /// Returns whether this rank is the first of the launch to ask about `topic`. Returns true if
    /// the store does not answer, so that a message is repeated rather than lost.
    pub fn is_first(&self, topic: &str) -> bool {
        let Some(eval_store) = &self.eval_store else {
            return true;
        };
        eval_store
            .add(&format!("said/{topic}"), 1)
            .map_or(true, |count| count == 1)
    }

    fn called_off(&self) -> Result<Option<String>, StoreError> {
        let Some(eval_store) = &self.eval_store else {
            return Ok(None);
        };
        let reason = if eval_store.check("off")? {
            Some(eval_store.get("off", ANSWER)?)
        } else {
            None
        };
        Ok(reason.map(|reason| String::from_utf8_lossy(&reason).into_owned()))
    }

    /// Reads the heartbeats of the other ranks, and returns those of all. A rank that relies on the
    /// overview of another one has none.
    pub fn look(&mut self) -> impl Iterator<Item = &Heartbeat> {
        self.read();
        self.watch.beats()
    }

    fn read(&mut self) {
        if self.follower.is_some() {
            return;
        }
        let (Some(eval_store), Some(losses)) = (&self.eval_store, &self.losses) else {
            return;
        };
        let is_direct = is_direct(self.world_size);
        let patience = match is_direct {
            true => Duration::ZERO,
            false => self.every * 2,
        };
        let read = self
            .reader
            .read(eval_store, losses, &mut self.watch, self.rank, patience);
        if let Err(err) = read {
            tracing::debug!(%err, "cannot read the heartbeats of all ranks");
        }
        if !is_direct {
            self.overview = self.watch.overview(self.overview.turn + 1, now());
            let text = serde_json::to_vec(&self.overview).expect("numbers and lists of them");
            // If this fails, the others read the one before.
            let _ = eval_store.set(OVERVIEW, &text);
        }
    }

    /// Reads what there is to know of the other ranks.
    fn update(&mut self) {
        let (Some(eval_store), Some(follower)) = (&self.eval_store, &mut self.follower) else {
            return self.read();
        };
        let found = eval_store.check(OVERVIEW).and_then(|there| match there {
            true => eval_store.get(OVERVIEW, ANSWER).map(Some),
            false => Ok(None),
        });
        let text = found.ok().flatten();
        if let Some(overview) = text.and_then(|text| serde_json::from_slice(&text).ok()) {
            follower.on(overview, now());
        }
    }

    // With many ranks, rank 0 decides by its overview, as the ranks do that read it.

    fn lost_so_far(&self, timeout: Duration) -> Vec<usize> {
        match &self.follower {
            Some(follower) => follower.lost(now(), timeout),
            None if is_direct(self.world_size) => self.watch.lost(now(), timeout),
            None => self.overview.lost(timeout),
        }
    }

    fn is_settled(&self, timeout: Duration) -> bool {
        let ranks = self.world_size;
        match &self.follower {
            Some(follower) => follower.settled(ranks, now(), timeout),
            None if is_direct(ranks) => self.watch.settled(now(), timeout),
            None => self.overview.settled(ranks, timeout),
        }
    }

    /// Returns the ranks that do not come back, or have made no progress for `timeout` since they
    /// were first seen.
    pub fn lost(&mut self, timeout: Duration) -> Vec<usize> {
        self.update();
        self.lost_so_far(timeout)
    }

    /// Waits for the time between two heartbeats, or until all leases of a stage are done.
    pub fn rest(&self, stage: usize) {
        let Some(eval_store) = &self.eval_store else {
            return;
        };
        // A timeout is the usual result; a lost connection is noticed by the next query.
        let waited = eval_store.wait(&format!("leased/{stage}"), self.every);
        if waited.is_err_and(|err| !err.is_missing()) {
            pause(self.every);
        }
    }

    /// Wakes the ranks that wait in [`RankPeers::rest`], because all leases of a stage are done.
    pub fn leased(&self, stage: usize) {
        if let Some(eval_store) = &self.eval_store {
            let _ = eval_store.set(&format!("leased/{stage}"), b"");
        }
    }

    /// Waits until every rank has arrived or is lost, which means without progress for `timeout`.
    /// Returns the lost ranks. Calls `meanwhile` with all heartbeats that this rank reads about as
    /// often as it publishes its own.
    pub fn wait_for_all(
        &mut self,
        beat: Heartbeat,
        timeout: Duration,
        stop: &StopRequest,
        mut meanwhile: impl FnMut(&Self, &[Heartbeat]),
    ) -> Vec<usize> {
        let beat = Heartbeat {
            arrived: true,
            ..beat
        };
        self.watch.on(self.rank, beat.clone(), now());
        self.publish(&beat);
        let Some(eval_store) = self.eval_store.clone() else {
            return Vec::new();
        };
        let (mut mends, mut have_all_arrived) = (0, false);
        // A rank that was restarted arrives again and must not be counted twice.
        let is_first = eval_store
            .add(&format!("arrived/{}", self.rank), 1)
            .is_ok_and(|count| count == 1);
        if is_first
            && eval_store
                .add("arrived", 1)
                .is_ok_and(|count| count as usize == self.world_size)
        {
            // Wakes the waiting ranks; a rank that misses it looks again a second later.
            let _ = eval_store.set("all", b"");
        }
        loop {
            self.update();
            let beats: Vec<_> = self.watch.beats().cloned().collect();
            meanwhile(self, &beats);
            if self.is_settled(timeout) || stop.asked() {
                return self.lost_so_far(timeout);
            }
            let waited = self
                .eval_store
                .as_ref()
                .map_or(Ok(()), |eval_store| eval_store.wait("all", self.every));
            if waited.is_ok() && self.follower.is_some() {
                // All have arrived, whether rank 0 knows that or not.
                return Vec::new();
            }
            if waited.is_ok() {
                // What the others have just published is read at once. If that does not settle it, a
                // rank that had arrived has died and been started again, and is under way once more.
                mends = 0;
                if have_all_arrived {
                    pause(self.every);
                }
                have_all_arrived = true;
                continue;
            }
            if waited.is_err_and(|err| err.is_missing()) {
                mends = 0;
                continue;
            }
            mends += 1;
            if mends > MENDS {
                return (0..self.world_size)
                    .filter(|rank| *rank != self.rank)
                    .collect();
            }
            let again = |reconnect: &mut Reconnect| {
                reconnect.begin_at_once(now());
                reconnect.wait()
            };
            if self.adopt_new(again) {
                self.publish(&beat);
            }
        }
    }

    /// Publishes that rank 0 has written the report.
    pub fn report_is_written(&self) {
        if let Some(eval_store) = &self.eval_store {
            // A rank that waits for the report has a time limit.
            let _ = eval_store.set("reported", b"");
        }
    }

    /// Waits for the report before this rank exits with an error, because its exit makes the
    /// launcher stop the others. After the time limit it exits anyway. Calls `meanwhile` about once
    /// a second.
    pub fn wait_for_report(&self, timeout: Duration, mut meanwhile: impl FnMut()) {
        let Some(eval_store) = &self.eval_store else {
            return;
        };
        let began = now();
        while began.elapsed() < timeout {
            meanwhile();
            match eval_store.wait("reported", MEANWHILE) {
                Err(err) if err.is_missing() => {}
                Ok(()) | Err(_) => break,
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the store cannot tell when: its key is there already, or it is away"
)]
fn pause(every: Duration) {
    thread::sleep(every);
}

#[cfg(test)]
mod tests;
