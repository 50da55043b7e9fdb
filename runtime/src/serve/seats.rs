//! Who may stay connected: a value without sockets and clocks.
//!
//! There are so many seats, and so much memory for messages that are not whole yet. When a new connection comes and no
//! seat is free, one is given up: of those that have never asked anything the longest silent, else of those that are not
//! waiting for an answer. When the memory is used up, the connection that holds most of it goes. So thousands of silent
//! connections, or promises of huge messages, cost others nothing.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::serve::batcher::ClientId;

/// Connections and what is known of them.
#[derive(Debug)]
pub struct Seats {
    most: usize,
    memory_bytes: usize,
    taken: BTreeMap<ClientId, Seat>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    /// When it last said something.
    heard: Instant,
    /// It has asked something that could be read.
    is_known: bool,
    /// It waits for an answer.
    is_waiting: bool,
    /// Bytes of a message that is not whole yet.
    held_bytes: usize,
}

/// Where a new connection sits, and who had to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its name.
    pub client: ClientId,
    /// Whose connection is to be closed.
    pub evicted: Option<ClientId>,
}

impl Seats {
    /// `most` connections, and `memory_bytes` for all their messages on the way.
    pub fn new(most: usize, memory_bytes: usize) -> Self {
        Self { most, memory_bytes, taken: BTreeMap::new(), next: 0 }
    }

    /// Connections that there may be.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Connections.
    pub fn count(&self) -> usize {
        self.taken.len()
    }

    /// Connections that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.taken.values().filter(|seat| seat.is_waiting).count()
    }

    /// A new connection; `None` if all others are waiting for answers.
    pub fn admit(&mut self, now: Instant) -> Option<Admitted> {
        let mut evicted = None;
        if self.taken.len() >= self.most {
            let idle = self.taken.iter().filter(|(_, seat)| !seat.is_waiting);
            let (longest, _) = idle.min_by_key(|(_, seat)| (seat.is_known, seat.heard))?;
            evicted = Some(*longest);
        }
        evicted.iter().for_each(|client| self.leave(*client));
        let client = ClientId(self.next);
        self.next += 1;
        self.taken.insert(client, Seat { heard: now, is_known: false, is_waiting: false, held_bytes: 0 });
        Some(Admitted { client, evicted })
    }

    /// A connection holds so much of a message that is not whole; gives the one to be closed if that is too much.
    pub fn hold(&mut self, client: ClientId, bytes: usize) -> Option<ClientId> {
        self.taken.get_mut(&client)?.held_bytes = bytes;
        let all: usize = self.taken.values().map(|seat| seat.held_bytes).sum();
        if all <= self.memory_bytes {
            return None;
        }
        let (greediest, _) = self.taken.iter().max_by_key(|(_, seat)| seat.held_bytes)?;
        let greediest = *greediest;
        self.leave(greediest);
        Some(greediest)
    }

    /// A connection has asked something.
    pub fn asked(&mut self, client: ClientId, now: Instant) {
        if let Some(seat) = self.taken.get_mut(&client) {
            *seat = Seat { heard: now, is_known: true, is_waiting: true, held_bytes: 0 };
        }
    }

    /// A connection has its answer.
    pub fn answered(&mut self, client: ClientId, now: Instant) {
        if let Some(seat) = self.taken.get_mut(&client) {
            seat.heard = now;
            seat.is_waiting = false;
        }
    }

    /// A connection is closed.
    pub fn leave(&mut self, client: ClientId) {
        self.taken.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "some moment to count from")]
    fn start() -> Instant {
        Instant::now()
    }

    fn full(count: u64, now: Instant) -> Seats {
        let mut seats = Seats::new(count as usize, 100);
        for number in 0..count {
            assert_eq!(seats.admit(now + Duration::from_secs(number)).unwrap().client, ClientId(number));
        }
        seats
    }

    #[test]
    fn strangers_go_before_clients_and_the_longest_silent_first() {
        let now = start();
        let mut seats = full(3, now);
        seats.asked(ClientId(0), now);
        seats.answered(ClientId(0), now);
        let evicted = |seats: &mut Seats| seats.admit(now + Duration::from_secs(9)).unwrap().evicted;
        assert_eq!(evicted(&mut seats), Some(ClientId(1)));
        assert_eq!(evicted(&mut seats), Some(ClientId(2)));
    }

    #[test]
    fn who_waits_for_an_answer_stays() {
        let now = start();
        let mut seats = full(2, now);
        seats.asked(ClientId(0), now);
        seats.asked(ClientId(1), now);
        assert_eq!(seats.admit(now), None);
        seats.answered(ClientId(1), now);
        assert_eq!(seats.admit(now).unwrap().evicted, Some(ClientId(1)));
        assert_eq!(seats.count(), 2);
    }

    #[test]
    fn the_greediest_goes_when_the_memory_is_used_up() {
        let mut seats = full(3, start());
        assert_eq!(seats.hold(ClientId(0), 30), None);
        assert_eq!(seats.hold(ClientId(1), 60), None);
        assert_eq!(seats.hold(ClientId(2), 20), Some(ClientId(1)));
        assert_eq!(seats.hold(ClientId(2), 40), None);
    }
}
