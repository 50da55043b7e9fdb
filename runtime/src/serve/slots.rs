//! Which environment index of a policy belongs to which client. Pure.
//!
//! Every row of a client's requests is a robot of its own, and has a slot, in which the policy
//! keeps what it remembers. The slots of a client that disconnects go to others.

use std::collections::{BTreeMap, BTreeSet};

use crate::env::EnvIndex;
use crate::serve::client::ClientEpisodeRow;
use crate::serve::connections::ConnectionId;

/// The slots of all clients.
#[derive(Debug, Default)]
pub struct ClientSlots {
    taken: BTreeMap<(ConnectionId, usize), ClientSlot>,
    free: BTreeSet<usize>,
    /// The first index that was never used.
    next: usize,
}

/// The slot of one row of a client.
#[derive(Clone, Copy, Debug)]
struct ClientSlot {
    index: usize,
    /// Number of the episode.
    episode: u64,
    /// The client's number of the request, which counts up only once a request was answered.
    request: u64,
    /// Number of requests of the episode before it that had this row and were answered.
    inference: u64,
}

/// A slot, and the episode in it.
#[derive(Clone, Copy, Debug)]
pub struct SlotEpisode {
    /// The environment index.
    pub env: EnvIndex,
    /// Number of the episode.
    pub episode: u64,
    /// Its seed.
    pub seed: u64,
    /// Number of chunks that it has had.
    pub inference: u64,
}

impl ClientSlots {
    /// Returns the slot of a row, which may be new.
    pub fn slot(&mut self, row: &ClientEpisodeRow) -> SlotEpisode {
        let place = (row.client, row.row);
        let known = self.taken.get(&place).copied();
        let same_episode = known.filter(|slot| slot.episode == row.number);
        let inference = same_episode.map_or(0, |slot| {
            slot.inference + u64::from(slot.request != row.inference)
        });
        let index = match known {
            Some(slot) => slot.index,
            None => self.take(),
        };
        let slot = ClientSlot {
            index,
            episode: row.number,
            request: row.inference,
            inference,
        };
        self.taken.insert(place, slot);
        SlotEpisode {
            env: EnvIndex(index),
            episode: row.number,
            seed: row.seed,
            inference,
        }
    }

    /// Returns a slot for one call, in which an episode with this seed starts. It has to be given
    /// back.
    pub fn borrow(&mut self, seed: u64) -> SlotEpisode {
        SlotEpisode {
            env: EnvIndex(self.take()),
            episode: 0,
            seed,
            inference: 0,
        }
    }

    /// Takes a borrowed slot back.
    pub fn give_back(&mut self, env: EnvIndex) {
        self.free.insert(env.0);
    }

    /// Frees the slots of a client.
    pub fn leave(&mut self, client: ConnectionId) {
        let rows: Vec<_> = self
            .taken
            .range((client, 0)..=(client, usize::MAX))
            .map(|(place, _)| *place)
            .collect();
        for place in rows {
            let slot = self.taken.remove(&place);
            self.free.extend(slot.map(|slot| slot.index));
        }
    }

    /// Takes the lowest free index.
    fn take(&mut self) -> usize {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(client: u64, row: usize, number: u64) -> ClientEpisodeRow {
        ClientEpisodeRow {
            client: ConnectionId(client),
            row,
            number,
            seed: 10 * client + number,
            inference: 0,
        }
    }

    #[test]
    fn every_row_of_a_client_has_a_slot_until_the_client_leaves() {
        let mut slots = ClientSlots::default();
        let mut index = |client, row_index| slots.slot(&row(client, row_index, 0)).env.0;
        assert_eq!([index(1, 0), index(1, 1), index(2, 0)], [0, 1, 2]);
        assert_eq!([index(1, 1), index(2, 0)], [1, 2]);
        slots.leave(ConnectionId(1));
        let mut index = |client, row_index| slots.slot(&row(client, row_index, 0)).env.0;
        assert_eq!([index(3, 0), index(2, 0), index(3, 1)], [0, 2, 1]);
    }

    #[test]
    fn inferences_count_once_they_are_answered_and_only_for_the_rows_that_they_had() {
        let mut slots = ClientSlots::default();
        let mut inference = |row_index, number, request| {
            let row = ClientEpisodeRow {
                inference: request,
                ..row(1, row_index, number)
            };
            slots.slot(&row).inference
        };
        // The second request is sent again, because it had no answer.
        assert_eq!(
            [0, 1, 1, 2].map(|request| inference(0, 0, request)),
            [0, 1, 1, 2]
        );
        assert_eq!([0, 2].map(|request| inference(1, 0, request)), [0, 1]);
        assert_eq!([0, 1].map(|request| inference(0, 1, request)), [0, 1]);
    }

    #[test]
    fn a_client_in_the_slot_of_another_starts_an_episode_of_its_own() {
        let mut slots = ClientSlots::default();
        slots.slot(&row(1, 0, 3));
        slots.leave(ConnectionId(1));
        let start = slots.slot(&row(2, 0, 3));
        let found = (start.env, start.episode, start.seed, start.inference);
        assert_eq!(found, (EnvIndex(0), 3, 23, 0));
    }

    #[test]
    fn a_borrowed_slot_is_nobody_else_s() {
        let mut slots = ClientSlots::default();
        assert_eq!(slots.slot(&row(1, 0, 0)).env, EnvIndex(0));
        let borrowed = slots.borrow(7);
        assert_eq!(borrowed.seed, 7);
        assert_eq!(slots.slot(&row(2, 0, 0)).env, EnvIndex(2));
        slots.give_back(borrowed.env);
        assert_eq!(slots.slot(&row(3, 0, 0)).env, borrowed.env);
    }
}
