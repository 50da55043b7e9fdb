//! Reads the heartbeats of all ranks with a few requests, however many ranks there are.
//!
//! ```text
//! a rank's first heartbeat   set(beat/<rank>), n = add(begun, 1), set(begun/<n>, <rank>)
//! a look                     add(begun, 0) ─► the new begun/<n> ─► multi_get(beat/… of all so far)
//! ```
//! So a look costs nothing for ranks that have not begun.

use std::collections::BTreeSet;
use std::time::Duration;

use c10d::{DistError, Store};

use crate::clock::now;
use crate::eval::monitor::heartbeat::{Heartbeat, Watch};
use crate::eval::monitor::pace::AT_ONCE;

/// The counter of ranks that have begun. A rank that is started again counts again.
const BEGUN: &str = "begun";

/// The key under which the launcher tells that it has given up some rank.
const ANY: &str = "any";

/// Time limit for a key that is there.
const ANSWER: Duration = Duration::from_secs(1);

/// Publishes the heartbeats of one rank.
#[derive(Debug, Default)]
pub struct BeatWriter {
    is_known: bool,
}

impl BeatWriter {
    /// Publishes a heartbeat of `rank`.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn write(&mut self, store: &Store, rank: usize, beat: &Heartbeat) -> Result<(), DistError> {
        let text =
            serde_json::to_vec(beat).expect("a beat has no map and no number that JSON lacks");
        store.set(&beat_key(rank), &text)?;
        if !self.is_known {
            let number = store.add(BEGUN, 1)?;
            store.set(&begun_key(number), rank.to_string().as_bytes())?;
            self.is_known = true;
        }
        Ok(())
    }
}

/// Which ranks have published a heartbeat.
#[derive(Debug, Default)]
pub struct BeatReader {
    seen: BTreeSet<usize>,
    /// How many have begun, as far as this reader knows.
    begun: i64,
    /// The numbers up to that which do not name a rank yet: it may have died just then.
    nameless: BTreeSet<i64>,
}

impl BeatReader {
    /// Reads the heartbeats of all ranks but `own` into `watch`, and which ranks the launcher has
    /// given up. That is asked for ranks without progress for `patience`.
    ///
    /// # Errors
    /// Returns an error if the store does not answer; what was read before counts.
    pub fn read(
        &mut self,
        beats: &Store,
        losses: &Store,
        watch: &mut Watch,
        own: usize,
        patience: Duration,
    ) -> Result<(), DistError> {
        if losses.check(ANY)? {
            for rank in watch.still(now(), patience) {
                if losses.check(&rank.to_string())? {
                    watch.gone(rank);
                }
            }
        }
        self.find(beats)?;
        let seen: Vec<usize> = self.seen.iter().copied().filter(|it| *it != own).collect();
        for part in seen.chunks(AT_ONCE) {
            let keys: Vec<_> = part.iter().map(|rank| beat_key(*rank)).collect();
            let texts = beats.multi_get(&keys)?;
            let moment = now();
            for (rank, text) in part.iter().zip(texts) {
                if let Ok(beat) = serde_json::from_slice(&text) {
                    watch.on(*rank, beat, moment);
                }
            }
        }
        Ok(())
    }

    /// Finds the ranks that have begun since the last call.
    fn find(&mut self, store: &Store) -> Result<(), DistError> {
        let begun = store.add(BEGUN, 0)?;
        self.nameless.extend(self.begun + 1..=begun);
        self.begun = begun;
        let numbers: Vec<i64> = self.nameless.iter().copied().collect();
        for part in numbers.chunks(AT_ONCE) {
            let keys: Vec<_> = part.iter().map(|number| begun_key(*number)).collect();
            let names = match store.check_all(&keys)? {
                true => store.multi_get(&keys)?.into_iter().map(Some).collect(),
                false => keys
                    .iter()
                    .map(|key| match store.check(key)? {
                        true => store.get(key, ANSWER).map(Some),
                        false => Ok(None),
                    })
                    .collect::<Result<Vec<_>, DistError>>()?,
            };
            for (number, name) in part.iter().zip(names) {
                let name = name.map(|name| String::from_utf8_lossy(&name).parse::<usize>());
                if let Some(name) = name {
                    self.nameless.remove(number);
                    self.seen.extend(name);
                }
            }
        }
        Ok(())
    }
}

fn beat_key(rank: usize) -> String {
    format!("beat/{rank}")
}

fn begun_key(number: i64) -> String {
    format!("{BEGUN}/{number}")
}
