//! The other ranks: heartbeats through the store while jobs run, and the barrier at the end.
//!
//! ```text
//! a rank's first heartbeat   set(beat/<rank>), append(begun, <rank>)
//! a look                     get(begun) ─► multi_get(beat/… of all in it)
//! ```
//! The load of the store is bounded however many ranks there are. It serves some 30 000 requests a
//! second on one core (benches/README.md). A heartbeat is two of them, a set and a question, and a
//! rank that waits needs two more.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use jobs::rank_env::RankEnv;
use tcpstore::{Store, StoreAddr, StoreError};

use crate::clock::now;
use crate::eval::monitor::Every;
use crate::eval::monitor::beat::Beat;
use crate::eval::monitor::peers::watch::{Outlook, STILL, Watch};

pub mod watch;

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

/// Ranks up to which each reads the heartbeats of all others when it waits. With more, rank 0 reads
/// them and publishes an overview for the others.
const DIRECT: usize = 64;

/// Heartbeats that the store receives in a second, at most.
const BEATS: u32 = 2048;

/// Longest time between two heartbeats of a rank. Whoever is told to end notices that late.
const LONGEST: Duration = Duration::from_secs(10);

/// Heartbeats in one request.
const AT_ONCE: usize = 1024;

/// The list of ranks that have begun. A rank that is started again is in it again.
const BEGUN: &str = "begun";

/// The key of the overview for ranks that wait.
const OVERVIEW: &str = "overview";

/// The other ranks, seen through the store. A single rank has no store.
pub struct Peers {
    rank: usize,
    world_size: usize,
    /// Part of the store's keys: `<run id>/<round>`.
    meeting: String,
    /// The store for the gather; `None` if there are no other ranks.
    pub store: Option<Store>,
    /// Keys of this launch attempt only, so that a restart does not read the heartbeats of the
    /// attempt before.
    pub eval_store: Option<Store>,
    /// Keys under which the launcher names the ranks that it does not restart.
    losses: Option<Store>,
    /// Without ranks if this one relies on the overviews of rank 0.
    watch: Watch,
    outlook: Outlook,
    /// Whether this rank is in the list of those that have begun.
    is_listed: bool,
    /// Interval of the heartbeats.
    pub every: Duration,
    /// `None` without a store.
    reconnect: Option<Reconnect>,
}

/// Returns the time between two heartbeats of one of so many ranks.
fn pace(ranks: usize) -> Duration {
    let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
    (Duration::from_secs(1) * ranks / BEATS).clamp(Duration::from_secs(1), LONGEST)
}

impl Peers {
    /// Connects to the store of this launch if there is more than one rank.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if the store cannot be reached.
    pub fn meet(env: &RankEnv) -> Result<Self, StoreError> {
        let addr = env.master.clone().filter(|_| env.world_size > 1);
        let addr = addr.map(|(host, port)| StoreAddr { host, port });
        let serve = env.rank == 0 && !env.agent_store;
        let connect = |addr| Store::connect(addr, env.world_size, serve, CONNECT);
        let store = addr.as_ref().map(connect).transpose()?;
        let follows = env.rank != 0 && env.world_size > DIRECT;
        let mut peers = Self {
            rank: env.rank,
            world_size: env.world_size,
            meeting: format!("{}/{}", env.run_id, env.round),
            store: None,
            eval_store: None,
            losses: None,
            // The heartbeats of others would take some megabytes on each rank.
            watch: Watch::new(if follows { 0 } else { env.world_size }, now()),
            outlook: Outlook::new(now()),
            is_listed: false,
            every: pace(env.world_size),
            reconnect: addr.map(|addr| Reconnect::new(addr, env.world_size)),
        };
        peers.adopt(store);
        Ok(peers)
    }

    fn adopt(&mut self, store: Option<Store>) {
        let part = |name: &str| {
            let part = store
                .as_ref()?
                .prefix(&format!("rrun/{name}/{}", self.meeting));
            Some(part.answering_within(PATIENCE))
        };
        (self.eval_store, self.losses) = (part("eval"), part("lost"));
        (self.store, self.is_listed) = (store, false);
    }

    /// Uses the connection of an attempt to reconnect, if there is one; returns whether there is.
    fn adopt_new(&mut self, wait: Duration) -> bool {
        let reconnect = self.reconnect.as_mut();
        let store = reconnect.and_then(|reconnect| reconnect.ended_within(wait));
        let is_there = store.is_some();
        if is_there {
            self.adopt(store);
        }
        is_there
    }

    /// Publishes this rank's heartbeat. Returns the reason if another rank has ended the
    /// evaluation.
    pub fn tell(&mut self, beat: &Beat) -> Option<String> {
        self.adopt_new(Duration::ZERO);
        self.publish(beat);
        // A set has no answer: only a query shows whether the store is still there.
        let store = self.eval_store.as_ref()?;
        let reason = found(store, "off");
        if let (Err(err), Some(reconnect)) = (&reason, &mut self.reconnect)
            && !err.is_missing()
        {
            reconnect.begin(AGAIN);
        }
        let reason = reason.ok().flatten()?;
        Some(String::from_utf8_lossy(&reason).into_owned())
    }

    /// Publishes a heartbeat. Errors are ignored: the evaluation itself needs no store, and if the
    /// store is gone, the launcher that serves it is gone too and its end stops this rank.
    fn publish(&mut self, beat: &Beat) {
        self.watch.on(self.rank, beat.clone(), now());
        let Some(eval_store) = &self.eval_store else {
            return;
        };
        let text = serde_json::to_vec(beat).expect("a beat has no number that JSON lacks");
        let mut told = eval_store.set(&beat_key(self.rank), &text);
        if told.is_ok() && !self.is_listed {
            told = eval_store.append(BEGUN, format!("{} ", self.rank).as_bytes());
            self.is_listed = told.is_ok();
        }
        if let Err(err) = told {
            tracing::debug!(%err, "cannot publish progress");
        }
    }

    /// Ends the evaluation of the other ranks too. Without a store there are none.
    pub fn call_off(&self, reason: &str) {
        // If this fails, the other ranks end with their own work.
        self.set("off", reason.as_bytes());
    }

    /// Sets a key of this launch attempt, if there are other ranks.
    fn set(&self, key: &str, value: &[u8]) {
        let stored = self.eval_store.as_ref().map(|store| store.set(key, value));
        if let Some(Err(err)) = stored {
            tracing::debug!(%err, key, "not in the store");
        }
    }

    /// Returns whether this rank is the first of the launch to ask about `topic`. Returns true if
    /// the store does not answer, so that a message is repeated rather than lost.
    pub fn is_first(&self, topic: &str) -> bool {
        let store = self.eval_store.as_ref();
        let count = store.map(|store| store.add(&format!("said/{topic}"), 1));
        count.and_then(Result::ok).is_none_or(|count| count == 1)
    }

    /// Returns the last heartbeats of all ranks; none if this rank relies on rank 0.
    pub fn beats(&self) -> impl Iterator<Item = &Beat> {
        self.watch.beats()
    }

    /// Reads what there is to know of the other ranks.
    pub fn read(&mut self) {
        let (Some(eval_store), Some(losses)) = (&self.eval_store, &self.losses) else {
            return;
        };
        let is_direct = self.world_size <= DIRECT;
        if !is_direct && self.rank != 0 {
            let text = found(eval_store, OVERVIEW).ok().flatten();
            if let Some(overview) = text.and_then(|text| serde_json::from_slice(&text).ok()) {
                self.outlook.on(overview, now());
            }
            return;
        }
        let (least, patience) = match is_direct {
            true => (Duration::ZERO, Duration::ZERO),
            false => (STILL, self.every * 2),
        };
        let others = (0..self.world_size).filter(|rank| *rank != self.rank);
        let read = read_beats(eval_store, &mut self.watch, others)
            .and_then(|()| read_losses(losses, &mut self.watch, patience));
        if let Err(err) = read {
            tracing::debug!(%err, "cannot read the heartbeats of all ranks");
        }
        let overview = self
            .watch
            .overview(self.outlook.last.turn + 1, now(), least);
        if !is_direct {
            let text = serde_json::to_vec(&overview).expect("numbers and lists of them");
            // If this fails, the others read the one before.
            self.set(OVERVIEW, &text);
        }
        self.outlook.on(overview, now());
    }

    /// Returns the ranks that do not come back, or have made no progress for `timeout` since they
    /// were first seen.
    pub fn lost(&mut self, timeout: Duration) -> Vec<usize> {
        self.read();
        self.outlook.lost(now(), timeout)
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

    /// Wakes the ranks that wait in [`Peers::rest`], because all leases of a stage are done.
    pub fn leased(&self, stage: usize) {
        self.set(&format!("leased/{stage}"), b"");
    }

    /// Publishes that this rank has arrived. A rank that was started again arrives again, and must
    /// not be counted twice.
    fn arrive(&mut self, beat: &Beat) -> Result<(), StoreError> {
        self.publish(beat);
        let Some(eval_store) = &self.eval_store else {
            return Ok(());
        };
        let is_first = eval_store.add(&format!("arrived/{}", self.rank), 1)? == 1;
        if is_first && eval_store.add("arrived", 1)? as usize == self.world_size {
            // Wakes the waiting ranks; a rank that misses it looks again a second later.
            eval_store.set("all", b"")?;
        }
        Ok(())
    }

    /// Waits until every rank has arrived or is lost, which means without progress for `timeout`,
    /// or until `meanwhile` returns true, which is called about as often as this rank publishes
    /// heartbeats. Returns the lost ranks.
    pub fn wait_for_all(
        &mut self,
        beat: &Beat,
        timeout: Duration,
        mut meanwhile: impl FnMut(&Self) -> bool,
    ) -> Vec<usize> {
        // Errors show in what follows.
        let _ = self.arrive(beat);
        if self.eval_store.is_none() {
            return Vec::new();
        }
        let (mut mends, mut have_all_arrived) = (0, false);
        loop {
            self.read();
            let is_over = meanwhile(self);
            if is_over || self.outlook.settled(self.world_size, now(), timeout) {
                return self.outlook.lost(now(), timeout);
            }
            let eval_store = self.eval_store.as_ref();
            let waited = eval_store.map_or(Ok(()), |store| store.wait("all", self.every));
            match waited {
                // All have arrived, whether rank 0 knows that or not.
                Ok(()) if self.beats().next().is_none() => return Vec::new(),
                Ok(()) => {
                    // What the others have just published is read at once. If that does not settle
                    // it, a rank that had arrived has died and been started again, and is under way
                    // once more.
                    mends = 0;
                    if have_all_arrived {
                        pause(self.every);
                    }
                    have_all_arrived = true;
                }
                Err(err) if err.is_missing() => mends = 0,
                Err(_) if mends == MENDS => {
                    let others = (0..self.world_size).filter(|rank| *rank != self.rank);
                    return others.collect();
                }
                Err(_) => {
                    mends += 1;
                    if let Some(reconnect) = &mut self.reconnect {
                        reconnect.begin(Duration::ZERO);
                    }
                    if self.adopt_new(LONGEST_ATTEMPT) {
                        self.publish(beat);
                    }
                }
            }
        }
    }

    /// Publishes that rank 0 has written the report, and trackers have it.
    pub fn report_is_written(&self) {
        // A rank that waits for the report has a time limit.
        self.set("reported", b"");
    }

    /// Waits for the report for a second at most; returns whether it may still come.
    pub fn wait_briefly_for_report(&self) -> bool {
        let store = self.eval_store.as_ref();
        let waited = store.map(|store| store.wait("reported", MEANWHILE));
        waited.is_some_and(|waited| waited.is_err_and(|err| err.is_missing()))
    }
}

/// Returns the value of a key, if there is one.
fn found(store: &Store, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    match store.check(key)? {
        true => store.get(key, ANSWER).map(Some),
        false => Ok(None),
    }
}

/// Reads the heartbeats of those `ranks` that have begun. What was read before an error counts.
fn read_beats(
    beats: &Store,
    watch: &mut Watch,
    ranks: impl Iterator<Item = usize>,
) -> Result<(), StoreError> {
    let begun = found(beats, BEGUN)?.unwrap_or_default();
    let begun = String::from_utf8_lossy(&begun);
    let begun: BTreeSet<usize> = begun.split(' ').filter_map(|it| it.parse().ok()).collect();
    let ranks: Vec<usize> = ranks.filter(|rank| begun.contains(rank)).collect();
    for part in ranks.chunks(AT_ONCE) {
        let keys: Vec<_> = part.iter().map(|rank| beat_key(*rank)).collect();
        let texts = beats.multi_get(&keys)?;
        for (rank, text) in part.iter().zip(texts) {
            if let Ok(beat) = serde_json::from_slice(&text) {
                watch.on(*rank, beat, now());
            }
        }
    }
    Ok(())
}

/// Reads which ranks the launcher has given up. That is asked for ranks without progress for
/// `patience`.
fn read_losses(losses: &Store, watch: &mut Watch, patience: Duration) -> Result<(), StoreError> {
    if losses.check("any")? {
        for (rank, _) in watch.still(now(), patience) {
            if losses.check(&rank.to_string())? {
                watch.gone.insert(rank);
            }
        }
    }
    Ok(())
}

fn beat_key(rank: usize) -> String {
    format!("beat/{rank}")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the store cannot tell when: its key is there already, or it is away"
)]
fn pause(every: Duration) {
    thread::sleep(every);
}

/// Time limit of one attempt to reconnect.
const ATTEMPT: Duration = Duration::from_secs(2);

/// An attempt may take somewhat longer than its limit.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(6);

/// Time from the start of an attempt to the next one, while there is something else to do.
const AGAIN: Duration = Duration::from_secs(5);

/// The attempts to reconnect to one store, on a thread of their own: the steps of the simulation go
/// on meanwhile.
struct Reconnect {
    addr: StoreAddr,
    world_size: usize,
    /// When the last attempt began.
    tried: Every,
    /// The attempt that is under way.
    attempt: Option<Receiver<Result<Store, StoreError>>>,
}

impl Reconnect {
    /// Creates the attempts to reach the store at `addr`; none has begun.
    pub fn new(addr: StoreAddr, world_size: usize) -> Self {
        Self {
            addr,
            world_size,
            tried: Every::default(),
            attempt: None,
        }
    }

    /// Begins an attempt, unless one is under way or began less than `pause` ago.
    pub fn begin(&mut self, pause: Duration) {
        if self.attempt.is_some() || !self.tried.due(pause, now()) {
            return;
        }
        let (done, attempt) = channel();
        let (addr, world_size) = (self.addr.clone(), self.world_size);
        let connect = move || drop(done.send(Store::connect(&addr, world_size, false, ATTEMPT)));
        let named = thread::Builder::new().name("rrun-reconnect".to_owned());
        match named.spawn(connect) {
            Ok(_) => self.attempt = Some(attempt),
            Err(err) => tracing::warn!(%err, "no thread to reach the store again"),
        }
    }

    /// Waits for the end of the attempt that is under way, and returns its store if it succeeds.
    pub fn ended_within(&mut self, wait: Duration) -> Option<Store> {
        let connected = self.attempt.as_ref()?.recv_timeout(wait);
        if matches!(connected, Err(RecvTimeoutError::Timeout)) {
            return None;
        }
        self.attempt = None;
        let connected = connected.ok()?;
        connected
            .inspect(|_| tracing::warn!(addr = %self.addr, "connected to the store again"))
            .inspect_err(|err| tracing::warn!(%err, "the store is unreachable"))
            .ok()
    }
}

#[cfg(test)]
mod tests;
