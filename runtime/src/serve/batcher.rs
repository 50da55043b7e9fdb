//! Which rows are inferred together, and when: a value without sockets and clocks.
//!
//! ```text
//! Asked ─► queue ─┬─ the policy is free, and (max_rows are there, or everyone who may still come is there,
//!                 │                           or the oldest has waited for max_wait) ─► Infer
//!                 └─ full, or stopping ─► Refuse
//! Inferred ─► the policy is free          Stop ─► what is queued is inferred, then Finished
//! ```
//! Who may still come: clients that had an answer a moment ago and are not in the queue. A client alone never waits, and
//! those that step together are inferred together although their requests come one after the other.
//!
//! Clients take turns ([`FairQueue`], by rows). A request with more than `max_rows` rows is inferred in parts, which go
//! behind the requests that fit into a batch, but for every fourth batch: whoever asks for hundreds of rows delays who
//! asks for one by a batch, however many of them there are, and gets on all the same.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::serve::fair_queue::{FairQueue, Place};

/// A client that had no answer for this long is not waited for: it is reading, or its robot stands still.
const RECENT: Duration = Duration::from_secs(2);

/// While both wait, one batch in so many begins with a part of a long request.
const LONG_TURN: u32 = 4;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// How much goes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of one batch; a request with more is inferred in parts.
    pub max_rows: usize,
    /// How long the first of a batch waits for others.
    pub max_wait: Duration,
    /// Requests in the queue.
    pub max_queue: usize,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client asks for actions of so many rows.
    Asked {
        /// Names the request.
        ticket: Ticket,
        /// Who asks.
        client: ClientId,
        /// Observations in it.
        rows: usize,
    },
    /// A client is gone; nobody waits for its answers.
    Left(ClientId),
    /// The batch is done, the policy is free.
    Inferred,
    /// Nobody wants the rows of this request that are still queued: others of it have failed.
    Failed(Ticket),
    /// The moment of [`Action::WakeAt`] has come.
    Woken,
    /// No more requests are taken.
    Stop,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Infer these together.
    Infer(Vec<Part>),
    /// Answer that it will not be done.
    Refuse(Ticket, Refusal),
    /// Come back then, unless something else happens before.
    WakeAt(Instant),
    /// Everything is answered, and nothing will come.
    Finished,
}

/// Some rows of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which request.
    pub ticket: Ticket,
    /// Which of its rows, all of them or some after those of its part before.
    pub rows: Range<usize>,
}

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The server ends.
    #[error("the server is stopping")]
    Stopping,
    /// Too many wait.
    #[error("the server has too many requests waiting, try again later")]
    Full,
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    /// Rows that were not given to the policy.
    rows: Range<usize>,
    since: Instant,
    /// It is inferred in parts.
    is_long: bool,
}

/// Puts rows of requests together.
#[derive(Debug)]
pub struct Batcher {
    limits: Limits,
    /// Requests that fit into a batch.
    short: FairQueue<Waiting>,
    /// Requests with more rows.
    long: FairQueue<Waiting>,
    /// Batches since the last one that began with a part of a long request, while one was waiting.
    passed_over: u32,
    /// Whose requests are done with the batch that is being inferred.
    inferring: Option<Vec<ClientId>>,
    /// When clients that are here had their last answer.
    answered: BTreeMap<ClientId, Instant>,
    is_stopping: bool,
}

impl Batcher {
    /// Nobody waits yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            short: FairQueue::default(),
            long: FairQueue::default(),
            passed_over: 0,
            inferring: None,
            answered: BTreeMap::new(),
            is_stopping: false,
        }
    }

    /// Requests in the queue.
    pub fn queued(&self) -> usize {
        self.short.len() + self.long.len()
    }

    fn waiting(&self) -> impl Iterator<Item = (Place, ClientId, &Waiting)> {
        self.short.iter().chain(self.long.iter())
    }

    /// What follows from `event`.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match event {
            Event::Asked { ticket, .. } if self.is_stopping => vec![Action::Refuse(ticket, Refusal::Stopping)],
            Event::Asked { ticket, .. } if self.queued() >= self.limits.max_queue => {
                vec![Action::Refuse(ticket, Refusal::Full)]
            }
            Event::Asked { ticket, client, rows } => {
                let is_long = rows > self.limits.max_rows;
                self.push(client, Waiting { ticket, rows: 0..rows, since: now, is_long });
                self.next(now)
            }
            Event::Left(client) => {
                self.short.leave(client);
                self.long.leave(client);
                self.answered.remove(&client);
                self.inferring.iter_mut().for_each(|clients| clients.retain(|other| *other != client));
                self.next(now)
            }
            Event::Failed(ticket) => {
                self.short.retain(|_, waiting| waiting.ticket != ticket);
                self.long.retain(|_, waiting| waiting.ticket != ticket);
                self.next(now)
            }
            Event::Inferred => {
                let clients = self.inferring.take().unwrap_or_default();
                self.answered.extend(clients.into_iter().map(|client| (client, now)));
                self.next(now)
            }
            Event::Woken => self.next(now),
            Event::Stop => {
                self.is_stopping = true;
                self.next(now)
            }
        }
    }

    fn next(&mut self, now: Instant) -> Vec<Action> {
        if self.inferring.is_some() {
            return Vec::new();
        }
        let Some(oldest) = self.waiting().map(|(_, _, waiting)| waiting.since).min() else {
            return if self.is_stopping { vec![Action::Finished] } else { Vec::new() };
        };
        let until = oldest + self.limits.max_wait;
        if now < until && !self.is_full() && !self.is_stopping && self.others_may_come(now) {
            return vec![Action::WakeAt(until)];
        }
        vec![Action::Infer(self.take())]
    }

    fn is_full(&self) -> bool {
        self.waiting().map(|(_, _, waiting)| waiting.rows.len()).sum::<usize>() >= self.limits.max_rows
    }

    fn others_may_come(&self, now: Instant) -> bool {
        let here: HashSet<ClientId> = self.waiting().map(|(_, client, _)| client).collect();
        let is_recent = |answered: Instant| now.saturating_duration_since(answered) < RECENT;
        self.answered.iter().any(|(client, answered)| is_recent(*answered) && !here.contains(client))
    }

    /// Rows of those whose turn it is, as many as go together. A request that would fit into a batch of its own is not
    /// split: one that does not fit behind the others keeps its place for the next batch.
    fn take(&mut self) -> Vec<Part> {
        self.passed_over = if self.long.is_empty() { 0 } else { self.passed_over + 1 };
        let begins_long = self.short.is_empty() || self.passed_over >= LONG_TURN;
        if begins_long {
            self.passed_over = 0;
        }
        let (mut room, mut batch, mut done) = (self.limits.max_rows, Vec::new(), Vec::new());
        for is_long in [begins_long, !begins_long] {
            let queue = if is_long { &self.long } else { &self.short };
            let places: Vec<_> = queue.iter().map(|(place, _, waiting)| (place, waiting.rows.len())).collect();
            for (place, rows) in places {
                let rows = rows.min(self.limits.max_rows);
                if rows > room {
                    continue;
                }
                let queue = if is_long { &mut self.long } else { &mut self.short };
                let Some((client, mut waiting)) = queue.take(place) else { continue };
                let part = waiting.rows.start..waiting.rows.start + rows;
                waiting.rows.start = part.end;
                batch.push(Part { ticket: waiting.ticket, rows: part });
                match waiting.rows.is_empty() {
                    true => done.push(client),
                    false => self.push(client, waiting),
                }
                room -= rows;
            }
        }
        self.inferring = Some(done);
        batch
    }

    fn push(&mut self, client: ClientId, waiting: Waiting) {
        let cost = waiting.rows.len().min(self.limits.max_rows) as u64;
        let queue = if waiting.is_long { &mut self.long } else { &mut self.short };
        queue.push(client, cost, waiting);
    }
}

#[cfg(test)]
mod tests;
