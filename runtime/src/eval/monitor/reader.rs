//! Reads the heartbeats of all ranks with a few requests, however many ranks there are.
//!
//! ```text
//! a rank's first heartbeat   set(beat/<rank>), append(begun, <rank>)
//! a look                     the new entries of begun ─► multi_get(beat/… of all so far)
//! ```
//! So a look costs nothing for ranks that have not begun.

use std::collections::BTreeSet;
use std::time::Duration;

use tcpstore::{Store, StoreError};

use crate::clock::now;
use crate::eval::monitor::heartbeat::{Heartbeat, Watch};
use crate::eval::monitor::pace::AT_ONCE;
use crate::eval::numbered_list::{ListReader, append};

/// The list of ranks that have begun. A rank that is started again is in it again.
const BEGUN: &str = "begun";

/// The key under which the launcher tells that it has given up some rank.
const ANY: &str = "any";

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
    pub fn write(
        &mut self,
        store: &Store,
        rank: usize,
        beat: &Heartbeat,
    ) -> Result<(), StoreError> {
        let text =
            serde_json::to_vec(beat).expect("a beat has no map and no number that JSON lacks");
        store.set(&beat_key(rank), &text)?;
        if !self.is_known {
            append(store, BEGUN, rank.to_string().as_bytes())?;
            self.is_known = true;
        }
        Ok(())
    }
}

/// Which ranks have published a heartbeat.
#[derive(Debug)]
pub struct BeatReader {
    seen: BTreeSet<usize>,
    begun: ListReader,
}

impl Default for BeatReader {
    fn default() -> Self {
        Self {
            seen: BTreeSet::new(),
            begun: ListReader::new(BEGUN),
        }
    }
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
    ) -> Result<(), StoreError> {
        if losses.check(ANY)? {
            for rank in watch.still(now(), patience) {
                if losses.check(&rank.to_string())? {
                    watch.gone(rank);
                }
            }
        }
        let seen = &mut self.seen;
        self.begun.read(beats, |name| {
            seen.extend(String::from_utf8_lossy(&name).parse::<usize>());
        })?;
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
}

fn beat_key(rank: usize) -> String {
    format!("beat/{rank}")
}
