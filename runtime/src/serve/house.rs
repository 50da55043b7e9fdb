//! What all connections of a server share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use jobs::serve_args::{Arrays, Protocol};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::policy::served::{Actions, Card, Question};
use crate::serve::batcher::ClientId;
use crate::serve::decoder::Decoder;
use crate::serve::desk::Message;
use crate::serve::limits::RequestLimits;
use crate::serve::now;
use crate::serve::seats::Seats;
use crate::serve::stats::Stats;
use wire::Dialect;

/// What all connections share.
#[derive(Debug)]
pub struct House {
    /// What the policy looks at and gives.
    pub card: Arc<Card>,
    /// What clients have to know.
    pub token: Option<String>,
    /// Whether a client may end the server.
    pub ignores_kill: bool,
    /// Form of arrays for clients that have sent none.
    pub arrays: Dialect,
    /// Whom it answers.
    pub protocol: Protocol,
    /// Longest request.
    pub most_bytes: usize,
    /// Bytes that a connection may send before it has shown the token.
    pub unauthenticated_bytes: usize,
    /// What one request may ask for.
    pub limits: RequestLimits,
    /// What was done so far.
    pub stats: Stats,
    /// Whether the end was asked for, and by whom.
    pub stop: watch::Sender<Option<&'static str>>,
    /// Bounded by the connections: each has one request on the way.
    pub desk: mpsc::UnboundedSender<Message>,
    decoder: Decoder,
    seats: Mutex<Seats>,
    tasks: Mutex<BTreeMap<ClientId, AbortHandle>>,
}

/// How a server is to be.
#[derive(Debug)]
pub struct Rules {
    /// What clients have to know.
    pub token: Option<String>,
    /// Whether a client may end the server.
    pub ignores_kill: bool,
    /// Form of arrays for clients that have sent none.
    pub arrays: Arrays,
    /// Whom it answers.
    pub protocol: Protocol,
    /// Longest request.
    pub most_bytes: usize,
    /// Bytes that a connection may send before it has shown the token.
    pub unauthenticated_bytes: usize,
    /// Bytes of all messages that are on the way or wait for their answer.
    pub memory_bytes: usize,
    /// What one request may ask for.
    pub limits: RequestLimits,
    /// Connections.
    pub most_connections: usize,
}

impl House {
    /// A house whose requests go to `desk`, and are decoded by `decoder`.
    pub fn new(card: Card, rules: Rules, decoder: Decoder, desk: mpsc::UnboundedSender<Message>) -> Arc<Self> {
        Arc::new(Self {
            card: Arc::new(card),
            token: rules.token,
            ignores_kill: rules.ignores_kill,
            arrays: match rules.arrays {
                Arrays::Kind => Dialect::Kind,
                Arrays::Npy => Dialect::Npy,
            },
            protocol: rules.protocol,
            most_bytes: rules.most_bytes,
            unauthenticated_bytes: rules.unauthenticated_bytes.min(rules.most_bytes),
            limits: rules.limits,
            stats: Stats::new(now()),
            stop: watch::Sender::new(None),
            desk,
            decoder,
            seats: Mutex::new(Seats::new(rules.most_connections, rules.memory_bytes)),
            tasks: Mutex::default(),
        })
    }

    /// Who may stay.
    pub fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has its task.
    pub fn opened(&self, client: ClientId, task: AbortHandle) {
        self.tasks().insert(client, task);
    }

    /// A connection holds so much of messages now; the greediest one goes if that is too much.
    pub fn hold(&self, client: ClientId, bytes: usize) {
        let greediest = self.seats().hold(client, bytes);
        if let Some(greediest) = greediest {
            self.stats.violated();
            self.close(greediest);
        }
    }

    /// Closes a connection.
    pub fn close(&self, client: ClientId) {
        let task = self.tasks().remove(&client);
        task.iter().for_each(AbortHandle::abort);
    }

    /// A connection is closed.
    pub fn forget(&self, client: ClientId) {
        self.tasks().remove(&client);
        self.seats().leave(client);
        self.decoder.leave(client);
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<ClientId, AbortHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `given` is the token, if there is one; takes as long for a wrong one as for the right one.
    pub fn lets_in(&self, given: Option<&str>) -> bool {
        let Some(token) = &self.token else { return true };
        let given = given.unwrap_or_default().as_bytes();
        let differences = token.bytes().zip(given).fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        token.len() == given.len() && differences == 0
    }

    /// Decodes a message of `bytes` bytes beside the connections.
    ///
    /// # Errors
    /// Why it was not decoded, in words for the client.
    pub async fn decode<T: Send + 'static>(
        &self,
        client: ClientId,
        bytes: usize,
        decode: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        self.decoder.run(client, bytes, decode).await.map_err(|err| {
            self.stats.refused();
            err.to_string()
        })
    }

    /// Asks the policy.
    ///
    /// # Errors
    /// Why there are no actions, in words for the client.
    pub async fn ask(&self, client: ClientId, rows: usize, question: Question) -> Result<Actions, String> {
        let (reply, answer) = oneshot::channel();
        let asked = Message::Asked { client, rows, question: Box::new(question), reply, at: now() };
        let gone = || "the policy's thread has ended".to_owned();
        self.desk.send(asked).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Asks for the end.
    pub fn end(&self, by: &'static str) {
        self.stop.send_if_modified(|reason| reason.is_none() && reason.replace(by).is_none());
    }

    /// Whether the end was asked for.
    pub fn is_ending(&self) -> bool {
        self.stop.borrow().is_some()
    }
}

/// What is to be done with an answer.
#[derive(Debug)]
pub enum Then {
    /// Send it, and go on.
    GoOn(Bytes),
    /// Send it, and end the server.
    End(Bytes),
}
