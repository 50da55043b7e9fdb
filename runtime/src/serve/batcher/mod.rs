//! Decides which rows are inferred together, and when. A state machine without sockets or clocks.
//!
//! ```text
//! Request ─► queue ─┬─ the policy is free, and (max_rows are queued,
//!                 │    or every client that may still ask is queued,
//!                 │    or the oldest request has waited for max_wait) ─► Infer
//!                 └─ full, or stopping ─► Refuse
//! Inferred ─► the policy is free          Stop ─► the queue is inferred, then Finished
//! ```
//! A client may still ask if it had an answer a moment ago and is not in the queue. So a single
//! client never waits, and clients that step together are inferred together although their requests
//! arrive one after the other.
//!
//! Clients take turns ([`FairQueue`], measured in rows). A request with more than `max_rows` rows
//! is inferred in parts. The parts come after the requests that fit into a batch, except in every
//! fourth batch. So requests for hundreds of rows delay a request for one row by at most one batch,
//! however many there are, and still make progress.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::serve::connections::ConnectionId;
use crate::serve::fair_queue::{FairQueue, QueuePosition};

/// A client without an answer for this long is not waited for: it is reading, or its robot stands
/// still.
const RECENT: Duration = Duration::from_secs(2);

/// While short and long requests wait, one batch in this many begins with a part of a long request.
const LONG_TURN: u32 = 4;

/// Identifies a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Limits of the batches and of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Maximum number of rows in a batch; a request with more is inferred in parts.
    pub max_rows: usize,
    /// Maximum time that the first request of a batch waits for others.
    pub max_wait: Duration,
    /// Maximum number of requests in the queue.
    pub max_queue: usize,
}

/// An input of the batcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatcherEvent {
    /// A client asks for the actions of `rows` rows.
    Request {
        /// Identifies the request.
        ticket: Ticket,
        /// The client that asks.
        client: ConnectionId,
        /// Number of observations in the request.
        rows: usize,
    },
    /// A client has disconnected; its requests are dropped.
    Left(ConnectionId),
    /// The batch is done, and the policy is free.
    Inferred,
    /// Other rows of this request have failed; those that are still queued are dropped.
    Failed(Ticket),
    /// The time of [`BatcherAction::WakeAt`] has come.
    Woken,
    /// The server stops; new requests are refused.
    Stop,
}

/// An output of the batcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatcherAction {
    /// Infer these parts together.
    Infer(Vec<RequestRows>),
    /// Refuse the request for this reason.
    Refuse(Ticket, &'static str),
    /// Send [`BatcherEvent::Woken`] at this time, unless another event comes first.
    WakeAt(Instant),
    /// Every request is answered, and none will follow.
    Finished,
}

/// A range of rows of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRows {
    /// The request.
    pub ticket: Ticket,
    /// The range of its rows: all of them, or some that follow its previous part.
    pub rows: Range<usize>,
}

/// The reason for a request that arrives while the server stops.
pub const STOPPING: &str = "the server is stopping";

/// The reason for a request that arrives while the queue is full.
pub const FULL: &str = "the server has too many requests waiting, try again later";

#[derive(Debug)]
struct QueuedRequest {
    ticket: Ticket,
    /// Rows that were not yet handed to the policy.
    rows: Range<usize>,
    since: Instant,
}

/// Combines rows of requests into batches.
#[derive(Debug)]
pub struct Batcher {
    limits: BatchLimits,
    /// Requests that fit into one batch, and those with more rows.
    queues: [FairQueue<QueuedRequest>; 2],
    /// Number of batches since the last one that began with a part of a long request, while one was
    /// waiting.
    passed_over: u32,
    /// Clients whose requests are complete with the current batch; `None` if the policy is free.
    inferring: Option<Vec<ConnectionId>>,
    /// Time of the last answer of each connected client.
    answered: BTreeMap<ConnectionId, Instant>,
    is_stopping: bool,
}

impl Batcher {
    /// Creates a batcher with an empty queue.
    pub fn new(limits: BatchLimits) -> Self {
        Self {
            limits,
            queues: Default::default(),
            passed_over: 0,
            inferring: None,
            answered: BTreeMap::new(),
            is_stopping: false,
        }
    }

    /// Returns the number of requests in the queue.
    pub fn queued(&self) -> usize {
        self.queues.iter().map(FairQueue::len).sum()
    }

    fn waiting(&self) -> impl Iterator<Item = (QueuePosition, ConnectionId, &QueuedRequest)> {
        self.queues.iter().flat_map(FairQueue::iter)
    }

    /// Processes `event` and returns the actions to take.
    pub fn on(&mut self, event: BatcherEvent, now: Instant) -> Vec<BatcherAction> {
        match event {
            BatcherEvent::Request { ticket, .. } if self.is_stopping => {
                vec![BatcherAction::Refuse(ticket, STOPPING)]
            }
            BatcherEvent::Request { ticket, .. } if self.queued() >= self.limits.max_queue => {
                vec![BatcherAction::Refuse(ticket, FULL)]
            }
            BatcherEvent::Request {
                ticket,
                client,
                rows,
            } => {
                let request = QueuedRequest {
                    ticket,
                    rows: 0..rows,
                    since: now,
                };
                self.push(client, request, rows > self.limits.max_rows);
                self.next(now)
            }
            BatcherEvent::Left(client) => {
                self.queues.iter_mut().for_each(|queue| queue.leave(client));
                self.answered.remove(&client);
                if let Some(clients) = &mut self.inferring {
                    clients.retain(|other| *other != client);
                }
                self.next(now)
            }
            BatcherEvent::Failed(ticket) => {
                for queue in &mut self.queues {
                    queue.retain(|_, waiting| waiting.ticket != ticket);
                }
                self.next(now)
            }
            BatcherEvent::Inferred => {
                let clients = self.inferring.take().unwrap_or_default();
                let answered = clients.into_iter().map(|client| (client, now));
                self.answered.extend(answered);
                self.next(now)
            }
            BatcherEvent::Woken => self.next(now),
            BatcherEvent::Stop => {
                self.is_stopping = true;
                self.next(now)
            }
        }
    }

    fn next(&mut self, now: Instant) -> Vec<BatcherAction> {
        if self.inferring.is_some() {
            return Vec::new();
        }
        let Some(oldest) = self.waiting().map(|(_, _, waiting)| waiting.since).min() else {
            let finished = self.is_stopping.then_some(BatcherAction::Finished);
            return finished.into_iter().collect();
        };
        let until = oldest + self.limits.max_wait;
        if now < until && !self.is_full() && !self.is_stopping && self.others_may_come(now) {
            return vec![BatcherAction::WakeAt(until)];
        }
        vec![BatcherAction::Infer(self.take())]
    }

    fn is_full(&self) -> bool {
        let rows = self.waiting().map(|(_, _, waiting)| waiting.rows.len());
        rows.sum::<usize>() >= self.limits.max_rows
    }

    fn others_may_come(&self, now: Instant) -> bool {
        let here: HashSet<ConnectionId> = self.waiting().map(|(_, client, _)| client).collect();
        let is_recent = |answered: Instant| now.saturating_duration_since(answered) < RECENT;
        self.answered
            .iter()
            .any(|(client, answered)| is_recent(*answered) && !here.contains(client))
    }

    /// Takes the rows of the next batch, in fair order. A request that fits into a batch of its own
    /// is not split: if it does not fit behind the others, it keeps its place for the next batch.
    fn take(&mut self) -> Vec<RequestRows> {
        let [short, long] = &self.queues;
        self.passed_over += 1;
        let begins_long = short.is_empty() || self.passed_over >= LONG_TURN;
        if begins_long || long.is_empty() {
            self.passed_over = 0;
        }
        let (mut room, mut batch, mut done) = (self.limits.max_rows, Vec::new(), Vec::new());
        for is_long in [begins_long, !begins_long] {
            let queue = self.queues[usize::from(is_long)].iter();
            let places: Vec<_> = queue
                .map(|(place, _, waiting)| (place, waiting.rows.len()))
                .collect();
            for (place, rows) in places {
                let rows = rows.min(self.limits.max_rows);
                if rows > room {
                    continue;
                }
                let taken = self.queues[usize::from(is_long)].take(place);
                let Some((client, mut waiting)) = taken else {
                    continue;
                };
                let start = waiting.rows.start;
                waiting.rows.start += rows;
                batch.push(RequestRows {
                    ticket: waiting.ticket,
                    rows: start..waiting.rows.start,
                });
                if waiting.rows.is_empty() {
                    done.push(client);
                } else {
                    self.push(client, waiting, is_long);
                }
                room -= rows;
            }
        }
        self.inferring = Some(done);
        batch
    }

    fn push(&mut self, client: ConnectionId, request: QueuedRequest, is_long: bool) {
        let cost = request.rows.len().min(self.limits.max_rows) as u64;
        self.queues[usize::from(is_long)].push(client, cost, request);
    }
}

#[cfg(test)]
mod tests;
