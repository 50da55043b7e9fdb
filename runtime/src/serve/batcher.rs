//! Which requests are inferred together, and when: a value without sockets and clocks.
//!
//! ```text
//! Asked ─► queue ─┬─ the policy is free, and (max_rows are there, or everyone who may still come is there,
//!                 │                           or the oldest has waited for max_wait) ─► Infer
//!                 └─ full, or stopping ─► Refuse
//! Inferred ─► the policy is free          Stop ─► what is queued is inferred, then Finished
//! ```
//! Who may still come: clients that had an answer a moment ago and are not in the queue. A client alone never waits, and
//! those that step together are inferred together although their requests come one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// A client that had no answer for this long is not waited for: it is reading, or its robot stands still.
const RECENT: Duration = Duration::from_secs(2);

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// How much goes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of one batch; a request with more is a batch of its own.
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
    /// The moment of [`Action::WakeAt`] has come.
    Woken,
    /// No more requests are taken.
    Stop,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Infer these together.
    Infer(Vec<Ticket>),
    /// Answer that it will not be done.
    Refuse(Ticket, Refusal),
    /// Come back then, unless something else happens before.
    WakeAt(Instant),
    /// Everything is answered, and nothing will come.
    Finished,
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

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: Ticket,
    client: ClientId,
    rows: usize,
    since: Instant,
}

/// Puts requests together.
#[derive(Debug)]
pub struct Batcher {
    limits: Limits,
    queue: VecDeque<Waiting>,
    /// Who is being inferred for.
    inferring: Option<Vec<ClientId>>,
    /// When clients that are here had their last answer.
    answered: BTreeMap<ClientId, Instant>,
    is_stopping: bool,
}

impl Batcher {
    /// Nobody waits yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, queue: VecDeque::new(), inferring: None, answered: BTreeMap::new(), is_stopping: false }
    }

    /// Requests in the queue.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// What follows from `event`.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match event {
            Event::Asked { ticket, .. } if self.is_stopping => vec![Action::Refuse(ticket, Refusal::Stopping)],
            Event::Asked { ticket, .. } if self.queue.len() >= self.limits.max_queue => {
                vec![Action::Refuse(ticket, Refusal::Full)]
            }
            Event::Asked { ticket, client, rows } => {
                self.queue.push_back(Waiting { ticket, client, rows, since: now });
                self.next(now)
            }
            Event::Left(client) => {
                self.queue.retain(|waiting| waiting.client != client);
                self.answered.remove(&client);
                self.inferring.iter_mut().for_each(|clients| clients.retain(|other| *other != client));
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
        let Some(first) = self.queue.front() else {
            return if self.is_stopping { vec![Action::Finished] } else { Vec::new() };
        };
        let until = first.since + self.limits.max_wait;
        if now < until && !self.is_full() && !self.is_stopping && self.others_may_come(now) {
            return vec![Action::WakeAt(until)];
        }
        let batch = self.take();
        self.inferring = Some(batch.iter().map(|waiting| waiting.client).collect());
        vec![Action::Infer(batch.iter().map(|waiting| waiting.ticket).collect())]
    }

    fn is_full(&self) -> bool {
        self.queue.iter().map(|waiting| waiting.rows).sum::<usize>() >= self.limits.max_rows
    }

    fn others_may_come(&self, now: Instant) -> bool {
        let is_recent = |answered: Instant| now.saturating_duration_since(answered) < RECENT;
        let is_here = |client: ClientId| self.queue.iter().any(|waiting| waiting.client == client);
        self.answered.iter().any(|(client, answered)| is_recent(*answered) && !is_here(*client))
    }

    /// The oldest ones, as many as go together.
    fn take(&mut self) -> Vec<Waiting> {
        let (mut rows, mut batch) = (0, Vec::new());
        while let Some(next) = self.queue.front().copied() {
            rows += next.rows;
            if !batch.is_empty() && rows > self.limits.max_rows {
                break;
            }
            batch.push(next);
            self.queue.pop_front();
        }
        batch
    }
}

#[cfg(test)]
mod tests;
