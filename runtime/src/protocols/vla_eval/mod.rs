//! vla-eval's protocol over websockets: that of any subclass of its `ModelServer`, and of its
//! benchmarks.
//!
//! ```text
//! Observation ─► Wiring: {images: {…}, states, task_description} ─► VlaEvalClient
//!                    hello, episode_start, observation, episode_end ──► │ one websocket for
//! {"actions": [dim] or [horizon, dim]} ─► Chunk ◄────────────────────── │ each environment
//! ```
//! The reference is the package `vla-eval` 0.8.0: `vla_eval.connection` is its client, and
//! `vla_eval.model_servers.serve` its server. A server keeps a session for each connection, with
//! the rest of the last chunk and whatever the model remembers, so every environment has a
//! connection of its own. A connection that is lost in the middle of an episode costs that episode,
//! because the server has forgotten its beginning; before the first answer it is made again.
//!
//! The server's half is here, with vla-eval's benchmarks as clients:
//!
//! ```text
//! hello ─► hello           episode_start ─► another episode, whose noise follows from its task
//! observation ─► the rest of the last chunk ─────────────────────────► action, one at a time
//!            └─► steps (past) ─► pictures, states ─► decoder ─► policy ┘      or error
//! ```
//! As in the reference (`vla_eval.model_servers.serve` and `predict`), the
//! server keeps the rest of a chunk, a client gets one action for each observation, and an error
//! leaves the connection open. A client sends `hello` as soon as it is connected, and an openpi
//! client waits for metadata. On any path, this server therefore speaks first, with metadata that
//! is a `hello` too ([`greet_early`]), and the first message tells who the client is
//! ([`is_hello`]). On the path [`PATH`] it waits for the client's `hello` and echoes its number.

mod client;
mod hello;
mod observation;

#[cfg(test)]
mod client_tests;
#[cfg(test)]
pub(crate) mod server_tests;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use jobs::sha256;
use serde_json::{Value as Json, json};
use wire::{Array, Dialect, VLA_EVAL_VERSION, Value, VlaEvalKind, VlaEvalMessage};

use crate::clock::unix_seconds;
use crate::policy::Chunk;
use crate::protocols::vla_eval::observation::{PastObservations, Sent};
use crate::serve::card::ServedSpec;
use crate::serve::request::RequestError;
use crate::serve::session::{Reply, ServerCodec, Session, Then};
use crate::serve::stats::Counted;

/// The path on which the server waits for the client's `hello`.
pub(crate) const PATH: &str = "/vla-eval";

/// Returns whether a first message is that of a client of vla-eval.
pub(crate) fn is_hello(message: &[u8]) -> bool {
    wire::peek_text(message, "type") == Some(VlaEvalKind::Hello.name())
}

/// What the server says to one client.
pub(crate) struct VlaEvalServer {
    /// Whether the server has already said `hello`, so that the first one is not answered.
    is_greeted: bool,
    /// The rest of the last chunk.
    chunk: VecDeque<Vec<f32>>,
    past: PastObservations,
}

impl VlaEvalServer {
    /// Starts with a client that has sent nothing yet. `is_greeted` tells that the server has said
    /// `hello` before it was asked.
    pub(crate) fn new(card: &ServedSpec, is_greeted: bool) -> Self {
        Self {
            past: PastObservations::new(&card.keys.modalities),
            is_greeted,
            chunk: VecDeque::new(),
        }
    }

    fn hello(&mut self, card: &ServedSpec, message: &VlaEvalMessage) -> Reply {
        let version = message.payload.get("protocol_version");
        if version.and_then(Value::as_u64) != Some(VLA_EVAL_VERSION) {
            let text = format!("expected protocol_version {VLA_EVAL_VERSION} in hello");
            return last(message.seq, RequestError::new(text));
        }
        if std::mem::take(&mut self.is_greeted) {
            return Reply::default();
        }
        Reply::control(hello(card, message.seq).write(unix_seconds()))
    }

    /// Forgets the episode, and starts another one.
    fn restart(&mut self, client: &mut Session, seed: Option<u64>) -> Reply {
        client.episode.reset(seed);
        self.chunk.clear();
        self.past.clear();
        Reply::default()
    }

    async fn observe(&mut self, client: &mut Session, seq: u64, sent: Sent) -> Reply {
        let sent = Arc::new(sent);
        if let Some(action) = self.chunk.pop_front() {
            self.past.push(sent);
            return Reply::control(action_of(seq, &action));
        }
        match self.infer(client, sent).await {
            Ok(()) => {
                let action = self.chunk.pop_front().unwrap_or_default();
                Reply::to_request(action_of(seq, &action), Ok(()))
            }
            Err(err) => failed(seq, err),
        }
    }

    /// Fills the chunk.
    async fn infer(&mut self, client: &mut Session, now: Arc<Sent>) -> Result<(), RequestError> {
        let seen = self.past.with(Arc::clone(&now));
        // Decoded pictures take more than the message, and past ones are decoded again.
        let longest_edge = client.server.limits.max_picture_edge;
        let pictures = observation::decoded_bytes(&seen, &client.server.card, longest_edge);
        let decoded = now.bytes + pictures;
        client.server.hold(client.id, decoded);
        let decode = move |card: &_, limits: &_| observation::validated(&seen, card, limits);
        let asked = client.decode(decoded, decode).await??;
        // The environment has shown this, whatever comes of the inference.
        self.past.push(now);
        client.server.stats().asked("infer");
        let chunks = client.episode.ask(&client.server, asked).await?;
        let executed = client.server.rules.chunk_size.unwrap_or(usize::MAX);
        let steps = chunks.first().into_iter().flat_map(Chunk::actions);
        self.chunk = steps.take(executed).map(<[f32]>::to_vec).collect();
        Ok(())
    }
}

impl ServerCodec for VlaEvalServer {
    async fn answer(&mut self, client: &mut Session, body: Result<Bytes, RequestError>) -> Reply {
        let read = async {
            let (body, bytes) = body.map(|body| (body.clone(), body.len()))?;
            let read = client.decode(bytes, move |_, _| VlaEvalMessage::read(&body));
            Ok::<_, RequestError>((read.await?, bytes))
        };
        let (message, bytes) = match read.await {
            Ok((Ok(message), bytes)) => (message, bytes),
            Ok((Err(err), _)) => return last(0, RequestError::rejected(Counted::Unreadable, err)),
            Err(err) => return failed(0, err),
        };
        client.server.connections().known(client.id);
        match message.kind {
            VlaEvalKind::Hello => self.hello(&client.server.card, &message),
            VlaEvalKind::EpisodeStart => {
                client.server.stats().asked("reset");
                self.restart(client, chosen_seed(&message.payload))
            }
            VlaEvalKind::EpisodeEnd => self.restart(client, None),
            VlaEvalKind::Observation => {
                let observation = message.payload;
                let sent = Sent { observation, bytes };
                self.observe(client, message.seq, sent).await
            }
            // The reference prints it.
            VlaEvalKind::Error => Reply::default(),
            VlaEvalKind::Action => {
                let reason = "actions come from the server";
                last(message.seq, RequestError::new(reason))
            }
        }
    }

    fn kept_bytes(&self) -> usize {
        self.past.bytes()
    }
}

/// Returns the `hello` that answers message `seq`.
///
/// `observation_params` makes the runner of vla-eval ask its benchmark for states and for the wrist
/// camera, and the specifications are compared with those of the benchmark.
fn hello(card: &ServedSpec, seq: u64) -> VlaEvalMessage {
    let views = &card.keys.modalities.video.keys;
    let lengths: Option<usize> = card.keys.states.iter().map(|(_, length)| *length).sum();
    let actions: usize = card.keys.actions.iter().map(|(_, width)| width).sum();
    let mut expected = json!({});
    for view in views {
        expected[view.as_str()] = part("image", 0, "rgb_hwc_uint8");
    }
    if !card.keys.modalities.state.keys.is_empty() {
        expected["state"] = part("state", lengths.unwrap_or(0), "raw");
    }
    expected["language"] = part("language", 0, "language");
    let payload = json!({
        "harness_version": concat!("rrun ", env!("CARGO_PKG_VERSION")),
        "protocol_version": VLA_EVAL_VERSION,
        "model_server": "rrun",
        "capabilities": {},
        "observation_params": {
            "send_state": !card.keys.modalities.state.keys.is_empty(),
            "send_wrist_image": views.len() > 1,
        },
        "action_spec": {"actions": part("actions", actions, "raw")},
        "observation_spec": expected,
    });
    VlaEvalMessage {
        kind: VlaEvalKind::Hello,
        payload: Value::from(&payload),
        seq,
    }
}

/// Returns a part of a specification; 0 as `dims` means that the number of values is not told.
fn part(name: &str, dims: usize, format: &str) -> Json {
    json!({"name": name, "dims": dims, "format": format})
}

/// Makes openpi's metadata a `hello`, too: a client of vla-eval takes it for the answer to its own,
/// whose number it does not compare.
pub(crate) fn greet_early(metadata: &mut Value, card: &ServedSpec) {
    if let Value::Map(members) = hello(card, 0).into_value(unix_seconds())
        && let Value::Map(metadata) = metadata
    {
        metadata.extend(members);
    }
}

fn message(kind: VlaEvalKind, seq: u64, member: (&str, Value)) -> Bytes {
    let payload = Value::map([member]);
    VlaEvalMessage { kind, payload, seq }.write(unix_seconds())
}

fn action_of(seq: u64, action: &[f32]) -> Bytes {
    let actions = Array::vector(action).into();
    message(VlaEvalKind::Action, seq, ("actions", actions))
}

/// Answers with an error, after which the client may send others.
fn failed(seq: u64, err: RequestError) -> Reply {
    let text = ("error", err.to_string().into());
    Reply::to_request(message(VlaEvalKind::Error, seq, text), Err(err))
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
