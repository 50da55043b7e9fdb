//! The state that all connections of a server share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jobs::serve_args::Protocol;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::clock::now;
use crate::policy::Chunk;
use crate::serve::batcher::STOPPING;
use crate::serve::card::ServedSpec;
use crate::serve::client::ClientRow;
use crate::serve::connections::ConnectionId;
use crate::serve::connections::Connections;
use crate::serve::decoder::Decoder;
use crate::serve::error::RequestError;
use crate::serve::limits::RequestLimits;
use crate::serve::stats::{Counted, Stats};
use wire::Dialect;

/// The reason for the exit of a server whose policy has panicked.
pub const POLICY_IS_GONE: &str = "the policy's thread has ended";

/// A message from a connection to the dispatcher.
#[derive(Debug)]
pub enum DispatcherMessage {
    /// A request for actions.
    Request {
        /// The client that asks.
        client: ConnectionId,
        /// The observations, and their episodes or noise.
        rows: Vec<ClientRow>,
        /// Receives the answer.
        reply: oneshot::Sender<Result<Vec<Chunk>, RequestError>>,
        /// Time of the request.
        at: Instant,
    },
    /// The connection is closed.
    Left(ConnectionId),
}

/// The state that all connections of a server share.
#[derive(Debug)]
pub struct ServerState {
    /// Inputs and outputs of the policy.
    pub card: Arc<ServedSpec>,
    /// What the server allows, and how it answers.
    pub rules: ServerConfig,
    /// Counters and latencies.
    pub stats: Stats,
    /// The reason for stopping; `None` while the server runs.
    pub stop: watch::Sender<Option<&'static str>>,
    /// Queue of the dispatcher. The number of connections bounds it, because each has at most one
    /// request under way.
    dispatcher: mpsc::UnboundedSender<DispatcherMessage>,
    decoder: Decoder,
    connections: Mutex<Connections>,
    tasks: Mutex<BTreeMap<ConnectionId, AbortHandle>>,
}

/// Configuration of a server.
#[derive(Debug)]
pub struct ServerConfig {
    /// Token that clients have to send; `None` if none is needed.
    pub token: Option<String>,
    /// True if the server ignores a client's request to stop.
    pub ignores_kill: bool,
    /// Encoding of arrays for clients that have sent none.
    pub arrays: Dialect,
    /// Protocols that are served.
    pub protocol: Protocol,
    /// Maximum size of a request in bytes.
    pub most_bytes: usize,
    /// Bytes that a connection may send before it has sent the token.
    pub unauthenticated_bytes: usize,
    /// Maximum bytes of all messages that are being received or wait for their answer.
    pub memory_bytes: usize,
    /// Limits of one request.
    pub limits: RequestLimits,
    /// Number of actions of a chunk that clients of vla-eval get, one at a time; `None` for all.
    pub chunk_size: Option<usize>,
    /// Maximum number of connections.
    pub most_connections: usize,
}

impl ServerState {
    /// Creates the shared state. Requests go to `dispatcher`.
    pub fn new(
        card: ServedSpec,
        rules: ServerConfig,
        dispatcher: mpsc::UnboundedSender<DispatcherMessage>,
    ) -> Arc<Self> {
        Arc::new(Self {
            card: Arc::new(card),
            stats: Stats::default(),
            stop: watch::Sender::new(None),
            dispatcher,
            decoder: Decoder::default(),
            connections: Mutex::new(Connections::new(rules.most_connections, rules.memory_bytes)),
            tasks: Mutex::default(),
            rules,
        })
    }

    /// Locks and returns the table of connections.
    pub fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the task of a connection.
    pub fn opened(&self, client: ConnectionId, task: AbortHandle) {
        self.tasks().insert(client, task);
    }

    /// Records that the messages of a connection now use `bytes` bytes. If that exceeds the limit,
    /// closes the connection that uses the most.
    pub fn hold(&self, client: ConnectionId, bytes: usize) {
        let greediest = self.connections().hold(client, bytes);
        if let Some(greediest) = greediest {
            self.stats.count(Counted::Violation);
            self.close(greediest);
        }
    }

    /// Records that `bytes` bytes of answered messages are kept for a connection.
    pub fn keep(&self, client: ConnectionId, bytes: usize) {
        self.connections().keep(client, bytes);
        self.hold(client, 0);
    }

    /// Closes a connection by aborting its task.
    pub fn close(&self, client: ConnectionId) {
        let task = self.tasks().remove(&client);
        task.iter().for_each(AbortHandle::abort);
    }

    /// Removes a connection that is closed, and its requests.
    pub fn forget(&self, client: ConnectionId) {
        self.tasks().remove(&client);
        self.connections().leave(client);
        // The dispatcher has ended if the server is stopping.
        let _ = self.dispatcher.send(DispatcherMessage::Left(client));
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, AbortHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether `given` is the token, or none is needed. The comparison takes constant time
    /// for a given length.
    pub fn lets_in(&self, given: Option<&str>) -> bool {
        let Some(token) = &self.rules.token else {
            return true;
        };
        let given = given.unwrap_or_default().as_bytes();
        let differences = token
            .bytes()
            .zip(given)
            .fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        token.len() == given.len() && differences == 0
    }

    /// Decodes a message of `bytes` bytes in a background thread.
    ///
    /// # Errors
    /// Returns the reason if the message was not decoded.
    pub async fn decode<T: Send + 'static>(
        &self,
        bytes: usize,
        decode: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        self.decoder.run(bytes, decode).await
    }

    /// Sends rows to the policy and waits for their chunks, which have as many actions as clients
    /// are promised.
    ///
    /// # Errors
    /// Returns the reason if there are no actions.
    pub async fn ask(
        &self,
        client: ConnectionId,
        rows: Vec<ClientRow>,
    ) -> Result<Vec<Chunk>, RequestError> {
        let (reply, answer) = oneshot::channel();
        let asked = DispatcherMessage::Request {
            client,
            rows,
            reply,
            at: now(),
        };
        self.dispatcher
            .send(asked)
            .map_err(|_| self.without_dispatcher())?;
        answer.await.map_err(|_| self.without_dispatcher())?
    }

    /// Returns the reason why the dispatcher, which passes requests to the policy, has ended.
    fn without_dispatcher(&self) -> RequestError {
        match *self.stop.borrow() {
            Some(reason) if reason != POLICY_IS_GONE => {
                RequestError::rejected(Counted::Refused, STOPPING)
            }
            _ => RequestError::new(POLICY_IS_GONE),
        }
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
