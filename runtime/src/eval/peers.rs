//! The other ranks: signs of life through the store while jobs run, and the meeting at the end.

use std::time::{Duration, Instant};

use jobs::rank_env::RankEnv;

use crate::dist::{DistError, Store, StoreAddr};
use crate::eval::beat::{Beat, Watch};
use crate::eval::now;
use crate::eval::stop::Stop;

/// How long the store may take to answer at the start; the ranks of a node start within seconds of each other.
const CONNECT: Duration = Duration::from_secs(60);

/// How often a rank tells how far it is.
const EVERY: Duration = Duration::from_secs(1);

/// The other ranks, seen through the store; alone without one.
pub struct Peers {
    rank: usize,
    world_size: usize,
    store: Option<Store>,
    /// What concerns this launch only: a restart must not read the beats of the attempt before.
    room: Option<Store>,
    /// Below it the launcher names the ranks that do not come back.
    losses: Option<Store>,
    watch: Watch,
    told: Option<Instant>,
}

impl Peers {
    /// Connects to the store of this launch, if there is more than one rank.
    ///
    /// # Errors
    /// [`DistError`] when it cannot be reached.
    pub fn meet(env: &RankEnv) -> Result<Self, DistError> {
        let store = match &env.master {
            Some((host, port)) if env.world_size > 1 => {
                let addr = StoreAddr { host: host.clone(), port: *port };
                let serve = env.rank == 0 && !env.agent_store;
                Some(Store::connect(&addr, env.world_size, serve, CONNECT)?)
            }
            _ => None,
        };
        let room = store.as_ref().map(|store| store.prefix(&format!("rrun/eval/{}/{}", env.run_id, env.round)));
        let losses = store.as_ref().map(|store| store.prefix(&format!("rrun/lost/{}/{}", env.run_id, env.round)));
        let watch = Watch::new(env.world_size, now());
        Ok(Self { rank: env.rank, world_size: env.world_size, store, room, losses, watch, told: None })
    }

    /// The store itself, for the gather.
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Whether the others have not been told anything for a second.
    pub fn is_due(&self) -> bool {
        let moment = now();
        self.told.is_none_or(|told| moment.saturating_duration_since(told) >= EVERY)
    }

    /// Tells the others how far this rank is.
    pub fn tell(&mut self, beat: &Beat) {
        let moment = now();
        self.told = Some(moment);
        self.watch.on(self.rank, beat.clone(), moment);
        self.publish(beat);
    }

    /// A store that is gone takes the launcher with it, and that one ends us; the evaluation itself needs no store.
    fn publish(&self, beat: &Beat) {
        let Some(room) = &self.room else { return };
        let text = serde_json::to_vec(beat).expect("a beat has no map and no number that JSON lacks");
        if let Err(err) = room.set(&format!("beat/{}", self.rank), &text) {
            tracing::warn!(%err, "cannot publish progress");
        }
    }

    /// Ends the evaluation for the other ranks too; without a store there are none.
    pub fn call_off(&self, reason: &str) {
        if let Some(room) = &self.room {
            // Whoever is left alone ends when its own work does.
            let _ = room.set("off", reason.as_bytes());
        }
    }

    /// Why another rank has ended the evaluation, if one has.
    pub fn called_off(&self) -> Option<String> {
        let room = self.room.as_ref()?;
        let reason = room.check("off").ok()?.then(|| room.get("off", EVERY).ok()).flatten()?;
        Some(String::from_utf8_lossy(&reason).into_owned())
    }

    /// Reads how far the others are.
    pub fn look(&mut self) -> impl Iterator<Item = &Beat> {
        if let (Some(room), Some(losses)) = (self.room.clone(), &self.losses) {
            for rank in (0..self.world_size).filter(|rank| *rank != self.rank) {
                if losses.check(&rank.to_string()).is_ok_and(|lost| lost) {
                    self.watch.gone(rank);
                }
                let key = format!("beat/{rank}");
                let beat =
                    room.check(&key).and_then(|there| if there { room.get(&key, EVERY).map(Some) } else { Ok(None) });
                if let Ok(Some(text)) = beat
                    && let Ok(beat) = serde_json::from_slice(&text)
                {
                    self.watch.on(rank, beat, now());
                }
            }
        }
        self.watch.beats()
    }

    /// Waits until every rank has arrived, or has given no sign of life for `timeout`; the lost ones are the answer.
    /// `meanwhile` sees all beats about once a second.
    pub fn wait_for_all(
        &mut self,
        beat: Beat,
        timeout: Duration,
        stop: &Stop,
        mut meanwhile: impl FnMut(&[Beat]),
    ) -> Vec<usize> {
        let beat = Beat { arrived: true, ..beat };
        self.watch.on(self.rank, beat.clone(), now());
        self.publish(&beat);
        let Some(room) = self.room.clone() else { return Vec::new() };
        // A rank that is started again arrives again.
        let is_first = room.add(&format!("arrived/{}", self.rank), 1).is_ok_and(|count| count == 1);
        if is_first && room.add("arrived", 1).is_ok_and(|count| count as usize == self.world_size) {
            // Wakes those who wait; one who is not woken looks again a second later.
            let _ = room.set("all", b"");
        }
        loop {
            let beats: Vec<_> = self.look().cloned().collect();
            meanwhile(&beats);
            if self.watch.settled(now(), timeout) || stop.asked() {
                return self.watch.lost(now(), timeout);
            }
            match room.wait("all", EVERY) {
                Err(err) if !err.is_timeout() => {
                    return (0..self.world_size).filter(|rank| *rank != self.rank).collect();
                }
                _ => {}
            }
        }
    }

    /// Rank 0 has written the report.
    pub fn report_is_written(&self) {
        if let Some(room) = &self.room {
            // Whoever waits for it has a deadline.
            let _ = room.set("reported", b"");
        }
    }

    /// A rank that ends with an error waits for the report: its end makes the launcher stop the others.
    pub fn wait_for_report(&self, timeout: Duration) {
        if let Some(room) = &self.room {
            // Without the word it ends all the same.
            let _ = room.wait("reported", timeout);
        }
    }
}
