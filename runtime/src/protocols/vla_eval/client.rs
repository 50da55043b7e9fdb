//! The client's half: one session for each environment.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jobs::policies::{PolicyType, Server, VlaEval};
use jobs::wiring::{Sides, Wiring, vla_eval};
use serde_json::{Map, Value as Json};
use wire::{Key, VLA_EVAL_VERSION, Value, VlaEvalKind, VlaEvalMessage};

use crate::clock::unix_seconds;
use crate::env::{EnvIndex, EnvSpec, Frame, Observation};
use crate::policy::remote::PolicyServer;
use crate::policy::{Chunk, PolicyError, PolicyFacts, PolicyRow, RowError, seen};
use crate::protocols::vla_eval::hello::VlaEvalHello;
use crate::protocols::{
    CallError, ClientCodec, Exchange, OnServer, Transport, inputs, numbers, picture,
};

/// What to do about a chunk of which nobody said how much is to be executed.
const SAY_HOW_MANY: &str = "; with action_chunk_length, that many actions of a chunk are executed";

/// What to do about single actions where chunks are expected.
const ONE_AT_A_TIME: &str = "; a server that sends one action needs no action_chunk_length";

impl OnServer for VlaEval {
    type Codec = VlaEvalClient;
    const PORT: u16 = 8000;
    /// vla-eval's own client waits 30 s; the first inference of a server compiles its network.
    const TIMEOUT: Duration = Duration::from_secs(120);

    fn server(&self) -> (&Server, Option<&PathBuf>) {
        self.websocket.place()
    }

    fn check(&self) -> Result<Option<usize>, PolicyError> {
        Ok(None)
    }

    fn client(self, _: &PolicyServer, env: &EnvSpec) -> Result<VlaEvalClient, PolicyError> {
        Ok(VlaEvalClient {
            wiring: vla_eval(sides(env), self.observation_mapping.as_ref())?,
            given: Arc::new(self),
            env: Arc::new(env.clone()),
            hello: None,
            notes: Vec::new(),
            seq: 0,
            episode: None,
        })
    }
}

/// What a client says to a model server of vla-eval over one connection.
#[derive(Clone)]
pub(crate) struct VlaEvalClient {
    given: Arc<VlaEval>,
    env: Arc<EnvSpec>,
    wiring: Wiring,
    /// What the server said first; later connections have to lead to the same one.
    hello: Option<VlaEvalHello>,
    notes: Vec<String>,
    /// Number of the last message.
    seq: u64,
    episode: Option<ToldEpisode>,
}

/// The episode of an environment.
#[derive(Clone)]
struct ToldEpisode {
    index: u64,
    /// Whether the server was told, over the connection that is open.
    is_told: bool,
    /// Number of answers.
    answers: u64,
}

impl VlaEvalClient {
    async fn send(
        &mut self,
        link: &mut impl Exchange,
        kind: VlaEvalKind,
        payload: Value,
    ) -> Result<u64, CallError> {
        self.seq += 1;
        let message = VlaEvalMessage {
            kind,
            payload,
            seq: self.seq,
        };
        link.send(message.write(unix_seconds())).await?;
        Ok(self.seq)
    }

    /// Ends the episode before, of which the server knows, and begins the row's unless that has
    /// begun. The last episode ends with its connection.
    async fn begin_episode(
        &mut self,
        link: &mut impl Exchange,
        row: &PolicyRow,
    ) -> Result<(), CallError> {
        let is_new = |episode: &ToldEpisode| episode.index != row.episode || episode.answers > 0;
        if row.inference == 0 && self.episode.as_ref().is_none_or(is_new) {
            let fresh = ToldEpisode {
                index: row.episode,
                is_told: false,
                answers: 0,
            };
            let ended = self.episode.replace(fresh).filter(|ended| ended.is_told);
            if let Some(ended) = ended {
                let steps = ("steps", ended.answers.into());
                let result = Value::map([("metrics", Value::map([])), steps]);
                self.send(link, VlaEvalKind::EpisodeEnd, result).await?;
            }
        }
        let is_untold = |episode: &ToldEpisode| !episode.is_told;
        if self.episode.as_ref().is_some_and(is_untold) {
            let mut task = Map::from_iter([
                ("name".to_owned(), Json::from(self.env.name.as_str())),
                ("episode_idx".to_owned(), row.episode.into()),
                ("seed".to_owned(), row.seed.into()),
            ]);
            task.extend(self.given.task.clone().unwrap_or_default());
            let task = Value::map([("task", Value::from(&Json::from(task)))]);
            self.send(link, VlaEvalKind::EpisodeStart, task).await?;
            if let Some(episode) = &mut self.episode {
                episode.is_told = true;
            }
        }
        Ok(())
    }

    /// Returns the action for the observation with this number. Actions for earlier ones, which a
    /// server with continuous inference sends, are skipped.
    async fn answer(&self, link: &mut impl Exchange, seq: u64) -> Result<Value, CallError> {
        let mut answer = read(&link.receive().await?)?;
        loop {
            match answer.kind {
                VlaEvalKind::Action if answer.seq == seq => return Ok(answer.payload),
                VlaEvalKind::Action if answer.seq < seq => {}
                VlaEvalKind::Error => {
                    let told = told(&answer.payload);
                    return Err(CallError::Wrong(format!("it answers with an error{told}")));
                }
                kind => {
                    let (kind, found) = (kind.name(), answer.seq);
                    let reason = format!("it answers observation {seq} with {kind} {found}");
                    return Err(CallError::Wrong(reason));
                }
            }
            answer = read(&link.receive_more().await?)?;
        }
    }
}

impl ClientCodec for VlaEvalClient {
    const TRANSPORT: Transport = Transport::Websocket("Api-Key");
    const STEPS: [&'static str; 3] = ["connecting", "observation", "observation"];

    fn lane(&self, env: EnvIndex) -> usize {
        env.0
    }

    /// Exchanges `hello` with the server.
    async fn greet(&mut self, link: &mut impl Exchange) -> Result<(), CallError> {
        match &mut self.episode {
            Some(episode) => episode.is_told = false,
            None => self.seq = 0,
        }
        let version = concat!("rrun ", env!("CARGO_PKG_VERSION"));
        let hello = Value::map([
            ("harness_version", version.into()),
            ("protocol_version", VLA_EVAL_VERSION.into()),
        ]);
        self.send(link, VlaEvalKind::Hello, hello).await?;
        let answer = read(&link.receive().await?)?;
        if answer.kind != VlaEvalKind::Hello {
            let (kind, told) = (answer.kind.name(), told(&answer.payload));
            let reason = format!("it answers hello with {kind}{told}");
            return Err(CallError::Wrong(reason));
        }
        let hello = VlaEvalHello::read(&answer.payload).map_err(CallError::Wrong)?;
        match &self.hello {
            Some(first) if *first != hello => Err(CallError::Wrong(format!(
                "another model server than before: {} of {}, it was {} of {}",
                hello.model, hello.version, first.model, first.version
            ))),
            Some(_) => Ok(()),
            None => {
                let notes = hello.check(sides(&self.env), &self.wiring);
                let notes = notes.map_err(|err| CallError::Policy(err.into()))?;
                self.notes.extend(notes);
                self.hello = Some(hello);
                Ok(())
            }
        }
    }

    async fn infer(
        &mut self,
        link: &mut impl Exchange,
        rows: &[&PolicyRow],
    ) -> Result<Vec<Chunk>, CallError> {
        let size = self.given.target_image_size.map(|size| size.0);
        let length = self.given.action_chunk_length.map(usize::from);
        let mut chunks = Vec::with_capacity(rows.len());
        for row in rows {
            let words = seen::words(row.now(), self.given.language_instruction.as_deref());
            let needs_words = self
                .hello
                .as_ref()
                .is_some_and(|hello| hello.needs_language);
            if needs_words && words.is_empty() {
                return Err(RowError::no_instruction().into());
            }
            let observation = shown(&self.wiring, size, row.now(), words)?;
            self.begin_episode(link, row).await?;
            let sent = self.send(link, VlaEvalKind::Observation, observation);
            let seq = sent.await?;
            let payload = self.answer(link, seq).await?;
            if let Some(episode) = &mut self.episode {
                episode.answers += 1;
            }
            let dim = self.env.action.names.len();
            let chunk = chunk(&payload, length, dim);
            chunks.push(chunk.map_err(CallError::Wrong)?);
        }
        Ok(chunks)
    }

    /// A server keeps what it knows of an episode with its connection.
    fn is_lost(&self, row: &PolicyRow) -> bool {
        let is_under_way = |episode: &ToldEpisode| episode.answers > 0;
        row.inference > 0 && self.episode.as_ref().is_some_and(is_under_way)
    }

    fn facts(&self) -> PolicyFacts {
        let hello = self.hello.clone().unwrap_or_default();
        PolicyFacts {
            horizon: self.given.action_chunk_length.map_or(1, usize::from),
            needs_video: self.wiring.sees(),
            reported: vec![
                ("policy_variant", hello.model.into()),
                ("vla_eval_version", hello.version.into()),
            ],
            notes: self.notes.clone(),
            ..PolicyFacts::default()
        }
    }
}

pub(super) fn sides(env: &EnvSpec) -> Sides<'_> {
    Sides::new(PolicyType::VlaEvalRemote, env)
}

fn read(message: &Bytes) -> Result<VlaEvalMessage, CallError> {
    let message = VlaEvalMessage::read(message);
    message.map_err(|err| CallError::Wrong(format!("its answer cannot be read: {err}")))
}

/// Returns the text of an error for a message, if it has one.
fn told(payload: &Value) -> String {
    let text = payload.get("error").and_then(Value::as_text);
    text.map_or_else(String::new, |text| format!(": {text}"))
}

/// Returns what the server is shown: `{"images": {name: [height, width, 3]}, "states": [n],
/// "task_description": words}`, with pictures of this height and width, or as they are.
///
/// # Errors
/// Returns an error if the observation lacks a picture or a state.
pub(super) fn shown(
    wiring: &Wiring,
    size: Option<[usize; 2]>,
    observation: &Observation,
    words: &str,
) -> Result<Value, RowError> {
    let (mut images, mut members) = (Vec::new(), Vec::new());
    let picture = |frame: &Frame| match size {
        Some(size) => picture::padded(frame, size).into(),
        None => picture::whole(frame).into(),
    };
    for (key, value) in inputs(wiring, observation, picture)? {
        match key.strip_prefix("images/") {
            Some(name) => images.push((Key::from(name), value)),
            None => members.push((Key::from(key), value)),
        }
    }
    members.insert(0, (Key::from("images"), Value::Map(images)));
    members.push((Key::from("task_description"), words.into()));
    Ok(Value::Map(members))
}

/// Returns the actions of an answer that are executed: `chunk_length` of them, or the only one.
///
/// # Errors
/// Says what is wrong with the answer.
pub(super) fn chunk(
    payload: &Value,
    chunk_length: Option<usize>,
    dim: usize,
) -> Result<Chunk, String> {
    let actions = payload.get("actions").or_else(|| payload.get("action"));
    let actions = actions.and_then(numbers);
    let (shape, numbers) = actions.ok_or("its answer has no numbers as `actions`")?;
    let horizon = chunk_length.unwrap_or(1);
    let fits = match shape[..] {
        [width] | [1, width] if horizon == 1 => width == dim,
        [steps, width] => width == dim && steps >= horizon && chunk_length.is_some(),
        _ => false,
    };
    if !fits {
        let hint = match shape[..] {
            [_, width] if width == dim && chunk_length.is_none() => SAY_HOW_MANY,
            [width] if width == dim => ONE_AT_A_TIME,
            _ => "",
        };
        return Err(format!(
            "its actions are {shape:?}, expected [{dim}] or [{horizon} or more, {dim}]{hint}"
        ));
    }
    Ok(Chunk::new(dim, numbers[..horizon * dim].to_vec()))
}
