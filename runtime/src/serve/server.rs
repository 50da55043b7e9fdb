//! The state that all connections of a server share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jobs::serve_args::ServeArgs;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::now;
use crate::policy::{Chunk, Inferred, PolicyRow};
use crate::serve::batcher::STOPPING;
use crate::serve::card::ServedSpec;
use crate::serve::connections::{ConnectionId, Connections};
use crate::serve::decoder::Decoder;
use crate::serve::request::{RequestError, RequestLimits};
use crate::serve::stats::{Counted, Stats};

/// The reason for the exit of a server whose policy has panicked.
pub const POLICY_IS_GONE: &str = "the policy's thread has ended";

/// Memory for all requests that are being received or wait for their answer, in messages of the
/// maximum size.
const MESSAGES_IN_MEMORY: usize = 16;

/// What the dispatcher is told.
#[derive(Debug)]
pub enum DispatcherMessage {
    /// A client asks for actions.
    Request(PolicyRequest),
    /// The policy has inferred a batch.
    Inferred(Inferred),
    /// The connection is closed.
    Left(ConnectionId),
}

/// A request without an answer yet.
#[derive(Debug)]
pub struct PolicyRequest {
    /// The client that asks.
    pub client: ConnectionId,
    /// The rows, whose index counts those of the client.
    pub rows: Vec<PolicyRow>,
    /// Chunks of the rows that have been inferred.
    pub chunks: Vec<Chunk>,
    /// Receives the answer.
    pub reply: oneshot::Sender<Result<Vec<Chunk>, RequestError>>,
    /// Time of the request.
    pub at: Instant,
}

/// The state that all connections of a server share.
#[derive(Debug)]
pub struct ServerState {
    /// Inputs and outputs of the policy.
    pub card: Arc<ServedSpec>,
    /// What the server allows, and how it answers.
    pub rules: ServeArgs,
    /// Limits of one request.
    pub limits: RequestLimits,
    /// The reason for stopping; `None` while the server runs.
    pub stop: watch::Sender<Option<&'static str>>,
    /// Queue of the dispatcher. The number of connections bounds it, because each has at most one
    /// request under way.
    dispatcher: mpsc::UnboundedSender<DispatcherMessage>,
    /// Decodes messages in background threads.
    pub decoder: Decoder,
    connections: Mutex<Connections>,
    stats: Mutex<Stats>,
}

impl ServerState {
    /// Creates the shared state of at most so many connections. Requests go to `dispatcher`.
    pub fn new(
        card: ServedSpec,
        rules: ServeArgs,
        most_connections: usize,
        dispatcher: mpsc::UnboundedSender<DispatcherMessage>,
    ) -> Arc<Self> {
        let memory = MESSAGES_IN_MEMORY * (rules.max_message << 20);
        let connections = Connections::new(most_connections, memory);
        Arc::new(Self {
            card: Arc::new(card),
            limits: RequestLimits {
                max_rows: rules.max_rows,
                max_picture_edge: rules.max_picture,
            },
            stop: watch::Sender::new(None),
            dispatcher,
            decoder: Decoder::default(),
            connections: Mutex::new(connections),
            stats: Mutex::default(),
            rules,
        })
    }

    /// Locks and returns the table of connections.
    pub fn connections(&self) -> MutexGuard<'_, Connections> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks and returns the counters and latencies.
    pub fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the messages of a connection now use `bytes` bytes. If that exceeds the limit,
    /// closes the connection that uses the most.
    pub fn hold(&self, client: ConnectionId, bytes: usize) {
        let greediest = self.connections().hold(client, bytes);
        if greediest.is_some() {
            self.stats().count(Counted::Violation);
        }
    }

    /// Records that `bytes` bytes of answered messages are kept for a connection.
    pub fn keep(&self, client: ConnectionId, bytes: usize) {
        self.connections().keep(client, bytes);
        self.hold(client, 0);
    }

    /// Removes a connection that is closed, and its requests.
    pub fn forget(&self, client: ConnectionId) {
        self.connections().leave(client);
        self.tell(DispatcherMessage::Left(client));
    }

    /// Returns whether `given` is the token, or none is needed. The comparison takes constant time
    /// for a given length.
    pub fn lets_in(&self, given: Option<&str>) -> bool {
        let Some(token) = &self.rules.api_token else {
            return true;
        };
        let given = given.unwrap_or_default().as_bytes();
        let pairs = token.bytes().zip(given);
        let differences = pairs.fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        token.len() == given.len() && differences == 0
    }

    /// Sends rows to the policy and waits for their chunks, which have as many actions as clients
    /// are promised.
    ///
    /// # Errors
    /// Returns the reason if there are no actions.
    pub async fn ask(
        &self,
        client: ConnectionId,
        rows: Vec<PolicyRow>,
    ) -> Result<Vec<Chunk>, RequestError> {
        let (reply, answer) = oneshot::channel();
        let request = PolicyRequest {
            client,
            rows,
            chunks: Vec::new(),
            reply,
            at: now(),
        };
        self.tell(DispatcherMessage::Request(request));
        answer.await.unwrap_or_else(|_| {
            // The dispatcher has ended.
            Err(match *self.stop.borrow() {
                Some(reason) if reason != POLICY_IS_GONE => {
                    RequestError::rejected(Counted::Refused, STOPPING)
                }
                _ => RequestError::new(POLICY_IS_GONE),
            })
        })
    }

    /// Tells the dispatcher something; if it has ended, the message is dropped.
    pub fn tell(&self, message: DispatcherMessage) {
        self.dispatcher.send(message).ok();
    }

    /// Requests a stop of the server; the first reason is kept.
    pub fn end(&self, by: &'static str) {
        self.stop
            .send_if_modified(|reason| reason.is_none() && reason.replace(by).is_none());
    }

    /// Returns whether a stop was requested.
    pub fn is_ending(&self) -> bool {
        self.stop.borrow().is_some()
    }
}
