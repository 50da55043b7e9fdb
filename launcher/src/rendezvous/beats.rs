//! Failure detection by heartbeats: each node increments a counter in the store, and a node whose
//! counter stands still is dead. Pure.
//!
//! A heartbeat is timed by the clock of the observer, when it sees the counter change. Torch
//! compares the clocks of different nodes instead, so with clocks 15 s apart it declares living
//! nodes dead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::rendezvous::state::NodeId;

/// The heartbeats seen from the other nodes.
#[derive(Debug)]
pub struct Beats {
    limit: Duration,
    seen: BTreeMap<NodeId, (Vec<u8>, Instant)>,
}

impl Beats {
    /// Returns a detector for which a node is dead when its heartbeat has not changed for `limit`.
    pub fn new(limit: Duration) -> Beats {
        Beats {
            limit,
            seen: BTreeMap::new(),
        }
    }

    /// Records the heartbeats of all known nodes, read at `now`, and returns the dead nodes. The
    /// time of a node seen for the first time starts now.
    pub fn on(
        &mut self,
        beats: impl IntoIterator<Item = (NodeId, Vec<u8>)>,
        now: Instant,
    ) -> BTreeSet<NodeId> {
        let before = std::mem::take(&mut self.seen);
        for (id, beat) in beats {
            let changed_at = before
                .get(&id)
                .filter(|(last, _)| *last == beat)
                .map_or(now, |(_, at)| *at);
            self.seen.insert(id, (beat, changed_at));
        }
        let is_gone = |at: Instant| now.saturating_duration_since(at) >= self.limit;
        self.seen
            .iter()
            .filter(|(_, (_, at))| is_gone(*at))
            .map(|(id, _)| id.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use jobs::time::now;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn beat(id: &str, beat: u8) -> (NodeId, Vec<u8>) {
        (id.to_owned(), vec![beat])
    }

    #[test]
    fn a_node_whose_beat_stands_still_is_gone() {
        let (mut beats, now) = (Beats::new(3 * SECOND), now());
        assert!(beats.on([beat("a", 1), beat("b", 1)], now).is_empty());
        assert!(
            beats
                .on([beat("a", 2), beat("b", 1)], now + 2 * SECOND)
                .is_empty()
        );
        assert_eq!(
            beats.on([beat("a", 3), beat("b", 1)], now + 3 * SECOND),
            BTreeSet::from(["b".to_owned()])
        );
    }

    #[test]
    fn who_was_not_looked_at_is_not_blamed_for_the_pause() {
        let (mut beats, now) = (Beats::new(3 * SECOND), now());
        beats.on([beat("a", 1)], now);
        assert!(beats.on([beat("a", 2)], now + 100 * SECOND).is_empty());
    }
}
