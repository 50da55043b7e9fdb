//! The other ranks: heartbeats through the store while jobs run, and the barrier at the end.

use std::time::{Duration, Instant};

use jobs::rank_env::RankEnv;

use crate::clock::now;
use crate::eval::monitor::heartbeat::{Heartbeat, Watch};
use crate::eval::monitor::stop::StopRequest;
use c10d::{DistError, Store, StoreAddr};

/// Time limit for the first connection to the store; the ranks of a node start within seconds of
/// each other.
const CONNECT: Duration = Duration::from_secs(60);

/// Time limit of one attempt to reconnect.
const MEND_LIMIT: Duration = Duration::from_secs(2);

/// Time from the start of an attempt to reconnect to the next one.
const MEND_EVERY: Duration = Duration::from_secs(5);

/// Consecutive attempts to reconnect at the end, when there is nothing else to do.
const MENDS: u32 = 3;

/// Interval of the heartbeats.
const EVERY: Duration = Duration::from_secs(1);

/// The other ranks, seen through the store. A single rank has no store.
pub struct RankPeers {
    rank: usize,
    world_size: usize,
    addr: Option<StoreAddr>,
    /// Part of the store's keys: `<run id>/<round>`.
    meeting: String,
    store: Option<Store>,
    /// Keys of this launch attempt only, so that a restart does not read the heartbeats of the
    /// attempt before.
    eval_store: Option<Store>,
    /// Keys under which the launcher names the ranks that it does not restart.
    losses: Option<Store>,
    watch: Watch,
    told: Option<Instant>,
    mended: Option<Instant>,
}

impl RankPeers {
    /// Connects to the store of this launch if there is more than one rank.
    ///
    /// # Errors
    /// Returns a [`DistError`] if the store cannot be reached.
    pub fn meet(env: &RankEnv) -> Result<Self, DistError> {
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
        let mut peers = Self {
            rank: env.rank,
            world_size: env.world_size,
            addr,
            meeting: format!("{}/{}", env.run_id, env.round),
            store: None,
            eval_store: None,
            losses: None,
            watch: Watch::new(env.world_size, now()),
            told: None,
            mended: None,
        };
        peers.adopt(store);
        Ok(peers)
    }

    fn adopt(&mut self, store: Option<Store>) {
        let part = |name: &str| {
            store
                .as_ref()
                .map(|store| store.prefix(&format!("rrun/{name}/{}", self.meeting)))
        };
        (self.eval_store, self.losses) = (part("eval"), part("lost"));
        self.store = store;
    }

    /// Reconnects to the store, at most once every few seconds; returns whether it succeeded.
    fn mend(&mut self) -> bool {
        let moment = now();
        if self
            .mended
            .is_some_and(|tried| moment.saturating_duration_since(tried) < MEND_EVERY)
        {
            return false;
        }
        self.mended = Some(moment);
        let Some(addr) = &self.addr else { return false };
        match Store::connect(addr, self.world_size, false, MEND_LIMIT) {
            Ok(store) => {
                tracing::warn!(%addr, "connected to the store again");
                self.adopt(Some(store));
                true
            }
            Err(err) => {
                tracing::warn!(%err, "the store is unreachable");
                false
            }
        }
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

    /// Returns whether the last heartbeat is more than a second old.
    pub fn is_due(&self) -> bool {
        let moment = now();
        self.told
            .is_none_or(|told| moment.saturating_duration_since(told) >= EVERY)
    }

    /// Publishes this rank's heartbeat. Returns the reason if another rank has ended the
    /// evaluation.
    pub fn tell(&mut self, beat: &Heartbeat) -> Option<String> {
        let moment = now();
        self.told = Some(moment);
        self.watch.on(self.rank, beat.clone(), moment);
        self.publish(beat);
        // A set has no answer: only a query shows whether the store is still there.
        match self.called_off() {
            Ok(reason) => return reason,
            Err(err) if !err.is_timeout() && self.mend() => self.publish(beat),
            Err(_) => {}
        }
        None
    }

    /// Publishes a heartbeat. Errors are ignored: the evaluation itself needs no store, and if the
    /// store is gone, the launcher that serves it is gone too and its end stops this rank.
    fn publish(&self, beat: &Heartbeat) {
        let Some(eval_store) = &self.eval_store else {
            return;
        };
        let text =
            serde_json::to_vec(beat).expect("a beat has no map and no number that JSON lacks");
        if let Err(err) = eval_store.set(&format!("beat/{}", self.rank), &text) {
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

    fn called_off(&self) -> Result<Option<String>, DistError> {
        let Some(eval_store) = &self.eval_store else {
            return Ok(None);
        };
        let reason = if eval_store.check("off")? {
            Some(eval_store.get("off", EVERY)?)
        } else {
            None
        };
        Ok(reason.map(|reason| String::from_utf8_lossy(&reason).into_owned()))
    }

    /// Reads the heartbeats of the other ranks.
    pub fn look(&mut self) -> impl Iterator<Item = &Heartbeat> {
        if let (Some(eval_store), Some(losses)) = (self.eval_store.clone(), &self.losses) {
            for rank in (0..self.world_size).filter(|rank| *rank != self.rank) {
                if losses.check(&rank.to_string()).is_ok_and(|lost| lost) {
                    self.watch.gone(rank);
                }
                let key = format!("beat/{rank}");
                let beat = eval_store.check(&key).and_then(|there| {
                    if there {
                        eval_store.get(&key, EVERY).map(Some)
                    } else {
                        Ok(None)
                    }
                });
                if let Ok(Some(text)) = beat
                    && let Ok(beat) = serde_json::from_slice(&text)
                {
                    self.watch.on(rank, beat, now());
                }
            }
        }
        self.watch.beats()
    }

    /// Returns the ranks that do not come back, or have made no progress for `timeout` since they
    /// were first seen.
    pub fn lost(&mut self, timeout: Duration) -> Vec<usize> {
        drop(self.look());
        self.watch.lost(now(), timeout)
    }

    /// Waits about a second, or until all leases of a stage are done.
    pub fn rest(&self, stage: usize) {
        if let Some(eval_store) = &self.eval_store {
            // A timeout is the usual result; a lost connection is noticed by the next query.
            let _ = eval_store.wait(&format!("leased/{stage}"), EVERY);
        }
    }

    /// Wakes the ranks that wait in [`RankPeers::rest`], because all leases of a stage are done.
    pub fn leased(&self, stage: usize) {
        if let Some(eval_store) = &self.eval_store {
            let _ = eval_store.set(&format!("leased/{stage}"), b"");
        }
    }

    /// Waits until every rank has arrived or is lost, which means without progress for `timeout`.
    /// Returns the lost ranks. Calls `meanwhile` with all heartbeats about once a second.
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
        let mut mends = 0;
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
            let beats: Vec<_> = self.look().cloned().collect();
            meanwhile(self, &beats);
            if self.watch.settled(now(), timeout) || stop.asked() {
                return self.watch.lost(now(), timeout);
            }
            let waited = self
                .eval_store
                .as_ref()
                .map_or(Ok(()), |eval_store| eval_store.wait("all", EVERY));
            if waited.is_ok() || waited.is_err_and(|err| err.is_timeout()) {
                mends = 0;
                continue;
            }
            mends += 1;
            if mends > MENDS {
                return (0..self.world_size)
                    .filter(|rank| *rank != self.rank)
                    .collect();
            }
            self.mended = None;
            if self.mend() {
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
            match eval_store.wait("reported", EVERY) {
                Err(err) if err.is_timeout() => {}
                Ok(()) | Err(_) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::monitor::cable::Cable;

    fn rank(rank: usize, port: u16) -> RankPeers {
        let env = RankEnv::read(|name| match name {
            "RANK" => Some(rank.to_string()),
            "WORLD_SIZE" => Some("2".to_owned()),
            "MASTER_ADDR" => Some("127.0.0.1".to_owned()),
            "MASTER_PORT" => Some(port.to_string()),
            "TORCHELASTIC_USE_AGENT_STORE" => Some("True".to_owned()),
            _ => None,
        });
        RankPeers::meet(&env.unwrap()).unwrap()
    }

    fn beat(steps: u64) -> Heartbeat {
        Heartbeat {
            steps,
            ..Heartbeat::default()
        }
    }

    #[test]
    fn a_rank_that_was_cut_off_is_heard_again() {
        let addr = StoreAddr {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let server = Store::connect(&addr, 1, true, CONNECT).unwrap();
        let cable = Cable::to(server.port());
        let (mut near, mut far) = (rank(0, server.port()), rank(1, cable.port));
        assert_eq!(far.tell(&beat(1)), None);
        assert_eq!(near.look().nth(1), Some(&beat(1)));
        cable.cut();
        far.tell(&beat(2));
        far.tell(&beat(3));
        assert_eq!(near.look().nth(1), Some(&beat(3)));
        near.call_off("enough");
        assert_eq!(far.tell(&beat(4)).as_deref(), Some("enough"));
    }

    #[test]
    fn of_all_ranks_one_is_the_first_to_speak_of_a_topic() {
        let addr = StoreAddr {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let server = Store::connect(&addr, 1, true, CONNECT).unwrap();
        let (near, far) = (rank(0, server.port()), rank(1, server.port()));
        assert_eq!(
            [
                far.is_first("renderer"),
                near.is_first("renderer"),
                far.is_first("renderer")
            ],
            [true, false, false]
        );
        assert!(near.is_first("another"));
    }

    #[test]
    fn a_rank_arrives_once_however_often_it_is_started() {
        let addr = StoreAddr {
            host: "127.0.0.1".to_owned(),
            port: 0,
        };
        let server = Store::connect(&addr, 1, true, CONNECT).unwrap();
        let arrive = |mut peers: RankPeers| {
            let stop = StopRequest::default();
            stop.call_off("the test does not wait".to_owned());
            peers.wait_for_all(beat(1), CONNECT, &stop, |_, _| {})
        };
        arrive(rank(1, server.port()));
        arrive(rank(1, server.port()));
        assert!(
            !server.check("rrun/eval/none/0/all").unwrap(),
            "rank 0 is not there"
        );
        arrive(rank(0, server.port()));
        assert!(server.check("rrun/eval/none/0/all").unwrap());
    }
}
