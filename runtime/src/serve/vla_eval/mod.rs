//! vla-eval's benchmarks as clients, for a GR00T checkpoint.
//!
//! ```text
//! hello ─► hello           episode_start ─► another episode, whose noise follows from its task
//! observation ─► the rest of the last chunk ─────────────────────────► action, one at a time
//!            └─► steps (past) ─► pictures, states ─► decoder ─► policy ┘      or error
//! ```
//! The reference is the package `vla-eval` 0.8.0, `vla_eval.model_servers.serve` and `predict`: the
//! server keeps the rest of a chunk, a client gets one action for each observation, and an error
//! leaves the connection open. A client sends `hello` as soon as it is connected, and an openpi
//! client waits for metadata. On any path, this server therefore speaks first, with metadata that
//! is a `hello` too ([`greet_early`]), and the first message tells who the client is
//! ([`is_hello`]). On the path [`PATH`] it waits for the client's `hello` and echoes its number.

mod hello;
mod observation;
mod past;
mod picture;

#[cfg(test)]
pub(super) mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use jobs::sha256;
use wire::{Array, Dialect, VLA_EVAL_VERSION, Value, VlaEvalKind, VlaEvalMessage};

use crate::clock::unix_seconds;
use crate::policy::Chunk;
use crate::serve::client::ClientEpisode;
use crate::serve::connections::ConnectionId;
use crate::serve::error::RequestError;
use crate::serve::server::ServerState;
use crate::serve::session::{Reply, Then};
use crate::serve::stats::Counted;
use crate::serve::vla_eval::past::PastObservations;

pub use hello::greet_early;

/// The path on which the server waits for the client's `hello`.
pub const PATH: &str = "/vla-eval";

/// Returns whether a first message is that of a client of vla-eval.
pub fn is_hello(message: &[u8]) -> bool {
    wire::peek_text(message, "type") == Some(VlaEvalKind::Hello.name())
}

/// The state of one client while it is connected.
#[derive(Debug)]
pub struct VlaEvalClient {
    server: Arc<ServerState>,
    id: ConnectionId,
    /// Whether the server has already said `hello`, so that the first one is not answered.
    is_greeted: bool,
    episode: ClientEpisode,
    /// The rest of the last chunk.
    chunk: VecDeque<Vec<f32>>,
    past: PastObservations,
}

impl VlaEvalClient {
    /// Creates a client that has sent nothing yet. `is_greeted` tells that the server has said
    /// `hello` before it was asked.
    pub fn new(server: Arc<ServerState>, id: ConnectionId, is_greeted: bool) -> Self {
        Self {
            episode: ClientEpisode::new(id),
            past: PastObservations::new(&server.card.modalities),
            server,
            id,
            is_greeted,
            chunk: VecDeque::new(),
        }
    }

    /// Returns how many bytes of earlier messages are kept.
    pub fn kept_bytes(&self) -> usize {
        self.past.bytes()
    }

    /// Answers one message.
    pub async fn answer(&mut self, body: Bytes) -> Reply {
        let bytes = body.len();
        let read = move || VlaEvalMessage::read(&body);
        let message = match self.server.decode(bytes, read).await {
            Ok(Ok(message)) => message,
            Ok(Err(err)) => {
                return last(0, RequestError::rejected(Counted::Unreadable, err));
            }
            Err(err) => return failed(0, err),
        };
        self.server.connections().known(self.id);
        match message.kind {
            VlaEvalKind::Hello => self.hello(&message),
            VlaEvalKind::EpisodeStart => {
                self.server.stats.asked("reset");
                self.restart(chosen_seed(&message.payload));
                Reply::nothing()
            }
            VlaEvalKind::EpisodeEnd => {
                self.restart(None);
                Reply::nothing()
            }
            VlaEvalKind::Observation => self.observe(message, bytes).await,
            // The reference prints it.
            VlaEvalKind::Error => Reply::nothing(),
            VlaEvalKind::Action => {
                let reason = "actions come from the server";
                last(message.seq, RequestError::new(reason))
            }
        }
    }

    fn hello(&mut self, message: &VlaEvalMessage) -> Reply {
        let version = message.payload.get("protocol_version");
        if version.and_then(Value::as_u64) != Some(VLA_EVAL_VERSION) {
            let text = format!("expected protocol_version {VLA_EVAL_VERSION} in hello");
            return last(message.seq, RequestError::new(text));
        }
        if std::mem::take(&mut self.is_greeted) {
            return Reply::nothing();
        }
        Reply::control(hello::message(&self.server.card, message.seq).write(unix_seconds()))
    }

    /// Forgets the episode, and starts another one.
    fn restart(&mut self, seed: Option<u64>) {
        self.episode.reset(seed);
        self.chunk.clear();
        self.past.clear();
    }

    async fn observe(&mut self, message: VlaEvalMessage, bytes: usize) -> Reply {
        let VlaEvalMessage { payload, seq, .. } = message;
        if let Some(action) = self.chunk.pop_front() {
            self.past.push(payload, bytes);
            return Reply::control(action_of(seq, &action));
        }
        match self.infer(payload, bytes).await {
            Ok(()) => {
                let action = self.chunk.pop_front().unwrap_or_default();
                Reply::to_request(action_of(seq, &action), Ok(()))
            }
            Err(err) => failed(seq, err),
        }
    }

    /// Fills the chunk.
    async fn infer(&mut self, now: Value, bytes: usize) -> Result<(), RequestError> {
        let (card, limits) = (Arc::clone(&self.server.card), self.server.rules.limits);
        let steps = self.past.steps(&now);
        // Decoded pictures take more than the message, and past ones are decoded again.
        let decoded = bytes + steps.decoded_bytes(limits.max_picture_edge);
        self.server.hold(self.id, decoded);
        let decode = move || observation::validated(&steps, &card, &limits);
        let asked = self.server.decode(decoded, decode).await??;
        // The environment has shown this, whatever comes of the inference.
        self.past.push(now, bytes);
        self.server.stats.asked("infer");
        let chunks = self.episode.ask(&self.server, asked).await?;
        let executed = self.server.rules.chunk_size.unwrap_or(usize::MAX);
        let steps = chunks.first().into_iter().flat_map(Chunk::actions);
        self.chunk = steps.take(executed).map(<[f32]>::to_vec).collect();
        Ok(())
    }
}

fn action_of(seq: u64, action: &[f32]) -> Bytes {
    let actions = Array::of_f32(&[action.len()], action);
    let message = VlaEvalMessage {
        kind: VlaEvalKind::Action,
        payload: Value::map([("actions", actions.into())]),
        seq,
    };
    message.write(unix_seconds())
}

/// Answers with an error, after which the client may send others.
fn failed(seq: u64, err: RequestError) -> Reply {
    let message = VlaEvalMessage {
        kind: VlaEvalKind::Error,
        payload: Value::map([("error", err.to_string().into())]),
        seq,
    };
    Reply::to_request(message.write(unix_seconds()), Err(err))
}

/// Answers with an error, after which the connection is closed.
fn last(seq: u64, err: RequestError) -> Reply {
    Reply {
        then: Then::Close,
        ..failed(seq, err)
    }
}

/// Returns the seed of the noise of an episode: that in its task, or one that follows from the
/// task, so that the same task and `episode_idx` have the same noise in any shard. An episode
/// without a task has a seed of its connection's.
fn chosen_seed(payload: &Value) -> Option<u64> {
    let task = payload.get("task")?;
    if let Some(seed) = task.get("seed").and_then(Value::as_u64) {
        return Some(seed);
    }
    let is_empty = matches!(task, Value::Map(members) if members.is_empty());
    let digest = sha256::digest(wire::write(task, Dialect::VlaEval));
    let seed = digest.iter().take(8);
    let seed = seed.fold(0, |seed, byte| seed << 8 | u64::from(*byte));
    (!is_empty).then_some(seed)
}
