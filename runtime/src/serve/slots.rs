//! Which environment index of a policy belongs to which client. Pure.
//!
//! Every row of a client's requests is a robot of its own, and has a slot, in which the policy
//! keeps what it remembers. The slots of a client that disconnects go to others.

use std::collections::{BTreeMap, BTreeSet};

use crate::env::EnvIndex;
use crate::policy::PolicyRow;
use crate::serve::connections::ConnectionId;

/// The slots of all clients.
#[derive(Debug, Default)]
pub struct ClientSlots {
    taken: BTreeMap<(ConnectionId, usize), ClientSlot>,
    free: BTreeSet<usize>,
    /// The slots that rows of the current batch have borrowed.
    borrowed: Vec<usize>,
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

impl ClientSlots {
    /// Returns a client's row as the policy gets it: in its slot, which may be new, with the
    /// number of inferences that it has had there. A row whose noise the client has chosen borrows
    /// a slot for this batch. Only clients of a checkpoint's own keys choose the noise itself; it
    /// is then drawn for all rows of a request alike.
    pub fn seat(&mut self, client: ConnectionId, row: &PolicyRow, is_interface: bool) -> PolicyRow {
        let mut row = row.clone();
        if row.noise.is_some() {
            let index = self.take();
            self.borrowed.push(index);
            row.env = EnvIndex(index);
            row.noise = row.noise.filter(|_| !is_interface);
            return row;
        }
        let place = (client, row.env.0);
        let known = self.taken.get(&place).copied();
        let same_episode = known.filter(|slot| slot.episode == row.episode);
        let slot = ClientSlot {
            index: known.map_or_else(|| self.take(), |slot| slot.index),
            episode: row.episode,
            request: row.inference,
            inference: same_episode.map_or(0, |slot| {
                slot.inference + u64::from(slot.request != row.inference)
            }),
        };
        self.taken.insert(place, slot);
        row.env = EnvIndex(slot.index);
        if is_interface {
            row.inference = slot.inference;
        }
        row
    }

    /// Takes the borrowed slots back.
    pub fn give_back(&mut self) {
        self.free.extend(self.borrowed.drain(..));
    }

    /// Frees the slots of a client.
    pub fn leave(&mut self, client: ConnectionId) {
        let rows = (client, 0)..=(client, usize::MAX);
        let left = self.taken.extract_if(rows, |_, _| true);
        self.free.extend(left.map(|(_, slot)| slot.index));
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
    use crate::env::Observation;
    use crate::policy::RowNoise;

    /// Returns a row of the first request of an episode.
    fn row(row: usize, episode: u64) -> PolicyRow {
        PolicyRow {
            episode,
            ..crate::policy::tests::row(row, Observation::default())
        }
    }

    fn slot(slots: &mut ClientSlots, client: u64, row: &PolicyRow) -> PolicyRow {
        slots.seat(ConnectionId(client), row, true)
    }

    #[test]
    fn every_row_of_a_client_has_a_slot_until_the_client_leaves() {
        let mut slots = ClientSlots::default();
        let mut index = |client, of| slot(&mut slots, client, &row(of, 0)).env.0;
        assert_eq!([index(1, 0), index(1, 1), index(2, 0)], [0, 1, 2]);
        assert_eq!([index(1, 1), index(2, 0)], [1, 2]);
        slots.leave(ConnectionId(1));
        let mut index = |client, of| slot(&mut slots, client, &row(of, 0)).env.0;
        assert_eq!([index(3, 0), index(2, 0), index(3, 1)], [0, 2, 1]);
    }

    #[test]
    fn inferences_count_once_they_are_answered_and_only_for_the_rows_that_they_had() {
        let mut slots = ClientSlots::default();
        let mut inference = |of, episode, request| {
            let mut row = row(of, episode);
            row.inference = request;
            slot(&mut slots, 1, &row).inference
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
        slot(&mut slots, 1, &row(0, 3));
        slots.leave(ConnectionId(1));
        let start = slot(&mut slots, 2, &row(0, 3));
        let found = (start.env, start.episode, start.inference);
        assert_eq!(found, (EnvIndex(0), 3, 0));
    }

    #[test]
    fn a_borrowed_slot_is_nobody_else_s() {
        let mut slots = ClientSlots::default();
        assert_eq!(slot(&mut slots, 1, &row(0, 0)).env, EnvIndex(0));
        let mut chosen = row(0, 0);
        chosen.noise = Some(RowNoise::Seed(7));
        let borrowed = slot(&mut slots, 1, &chosen);
        assert_eq!((borrowed.env, borrowed.noise), (EnvIndex(1), None));
        assert_eq!(slot(&mut slots, 2, &row(0, 0)).env, EnvIndex(2));
        slots.give_back();
        assert_eq!(slot(&mut slots, 3, &row(0, 0)).env, borrowed.env);
    }

    #[test]
    fn only_clients_of_a_checkpoints_own_keys_choose_its_noise() {
        let mut chosen = row(0, 0);
        chosen.noise = Some(RowNoise::Given(vec![1.0]));
        let mut own = row(1, 0);
        (own.seed, own.inference) = (3, 5);
        let found = [false, true].map(|is_interface| {
            let mut slots = ClientSlots::default();
            let mut seat = |row| slots.seat(ConnectionId(7), row, is_interface);
            let (chosen, own) = (seat(&chosen), seat(&own));
            (chosen.inference, chosen.noise, own.inference, own.seed)
        });
        let noise = Some(RowNoise::Given(vec![1.0]));
        assert_eq!(found, [(0, noise, 5, 3), (0, None, 0, 3)]);
    }
}
