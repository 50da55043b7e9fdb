//! One environment's session on the server: its connection and its episode.

use std::time::Instant;

use bytes::Bytes;
use serde_json::{Map, Value as Json};
use wire::{VLA_EVAL_VERSION, Value, VlaEvalKind, VlaEvalMessage};

use crate::clock::{now, unix_seconds};
use crate::policy::remote::{
    CallError, Lifeline, PolicyServer, RetryDecision, RetryPatience, ServerConnection as _,
    WebsocketConnection,
};
use crate::policy::vla_eval::hello::VlaEvalHello;
use crate::policy::{PolicyError, PolicyRow};

/// One environment's session on the server.
#[derive(Debug)]
pub(super) struct VlaEvalSession {
    server: PolicyServer,
    lifeline: Lifeline,
    /// What the server said first; later connections have to lead to the same one.
    hello: Option<VlaEvalHello>,
    connection: Option<WebsocketConnection>,
    patience: RetryPatience,
    /// Number of the last message.
    seq: u64,
    episode: Option<SessionEpisode>,
    /// The number of the observation that [`VlaEvalSession::begin`] has sent.
    begun: Option<Result<u64, CallError>>,
}

/// The episode of an environment.
#[derive(Debug)]
struct SessionEpisode {
    /// What the server is told of it.
    task: Json,
    /// Whether the server was told, over the connection that is open.
    is_told: bool,
    /// Number of answers.
    answers: u64,
}

/// Why an observation has no answer.
#[derive(Debug)]
pub(super) enum SessionError {
    /// The episode cannot go on; others can.
    Episode(String),
    /// The server stays away, or the evaluation ends.
    Job(PolicyError),
}

impl VlaEvalSession {
    /// Creates a session that connects when it is needed.
    pub(super) fn new(
        server: &PolicyServer,
        lifeline: &Lifeline,
        hello: Option<&VlaEvalHello>,
    ) -> Self {
        Self {
            server: server.clone(),
            lifeline: lifeline.clone(),
            hello: hello.cloned(),
            connection: None,
            patience: RetryPatience::new(server.retry),
            seq: 0,
            episode: None,
            begun: None,
        }
    }

    /// Connects, waiting for a server that comes late; returns what it says of itself.
    ///
    /// # Errors
    /// Returns an error if it stays unreachable or does not speak the protocol.
    pub(super) fn meet(&mut self) -> Result<VlaEvalHello, PolicyError> {
        loop {
            let began = now();
            match self.connect() {
                Ok(()) => {
                    self.answered();
                    return Ok(self.hello.clone().unwrap_or_default());
                }
                Err(CallError::Wrong(reason)) => {
                    return Err(self.server.error(format!("connecting: {reason}")));
                }
                Err(trouble) => self.wait("connecting", trouble, began)?,
            }
        }
    }

    /// Ends the episode, if there is one, and prepares for the next one, of which the server is
    /// told with its first observation.
    pub(super) fn start_episode(&mut self, row: &PolicyRow, name: &str, more: &Map<String, Json>) {
        self.end_episode();
        let mut task = Map::from_iter([
            ("name".to_owned(), name.into()),
            ("episode_idx".to_owned(), row.episode.into()),
            ("seed".to_owned(), row.seed.into()),
        ]);
        task.extend(more.clone());
        self.episode = Some(SessionEpisode {
            task: task.into(),
            is_told: false,
            answers: 0,
        });
    }

    /// Tells the server that the episode has ended, if it knows of one. The last episode ends with
    /// its connection.
    fn end_episode(&mut self) {
        let Some(ended) = self.episode.take().filter(|episode| episode.is_told) else {
            return;
        };
        let result = Value::map([("metrics", Value::map([])), ("steps", ended.answers.into())]);
        if self.connection.is_some() && self.send(VlaEvalKind::EpisodeEnd, result).is_err() {
            // The next episode connects again, and reports what is wrong.
            self.connection = None;
        }
    }

    /// Sends an observation without waiting for its answer, so that the server has those of several
    /// environments. [`VlaEvalSession::finish`] reports errors.
    pub(super) fn begin(&mut self, observation: &Value) {
        self.begun = Some(self.ask(observation));
    }

    /// Waits for the answer to the observation that [`VlaEvalSession::begin`] has sent. A first
    /// observation is sent again to a server that comes back.
    ///
    /// # Errors
    /// Returns a [`SessionError`].
    pub(super) fn finish(&mut self, observation: &Value) -> Result<Value, SessionError> {
        loop {
            let began = now();
            let asked = match self.begun.take() {
                Some(asked) => asked,
                None => self.ask(observation),
            };
            let trouble = match asked.and_then(|seq| self.answer(seq)) {
                Ok(action) => {
                    self.answered();
                    if let Some(episode) = &mut self.episode {
                        episode.answers += 1;
                    }
                    return Ok(action);
                }
                Err(trouble) => trouble,
            };
            // What is still under way would be taken for the answer to something else.
            self.disconnect();
            match trouble {
                CallError::Wrong(reason) => return Err(self.lost(&reason)),
                CallError::Away(reason) if self.is_under_way() => {
                    let lost = "the server has lost the session of this episode";
                    return Err(self.lost(&format!("{reason}; {lost}")));
                }
                trouble => self
                    .wait("observation", trouble, began)
                    .map_err(SessionError::Job)?,
            }
        }
    }

    fn is_under_way(&self) -> bool {
        let episode = self.episode.as_ref();
        episode.is_some_and(|episode| episode.answers > 0)
    }

    fn lost(&self, reason: &str) -> SessionError {
        let err = self.server.refusal(format!("observation: {reason}"));
        SessionError::Episode(err.to_string())
    }

    /// Drops the connection, so that outstanding answers are discarded.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
        self.begun = None;
        if let Some(episode) = &mut self.episode {
            episode.is_told = false;
        }
    }

    /// Records that the server is there.
    fn answered(&mut self) {
        let back = self.patience.succeeded(now());
        back.into_iter().for_each(|text| self.say(&text));
    }

    /// Waits before another attempt.
    fn wait(&mut self, what: &str, trouble: CallError, began: Instant) -> Result<(), PolicyError> {
        let reason = match trouble {
            CallError::Cut => {
                let reason = format!("{what}: given up, because the evaluation ends");
                return Err(self.server.error(reason));
            }
            CallError::Away(reason) | CallError::Wrong(reason) => format!("{what}: {reason}"),
        };
        match self.patience.failed(&reason, began, now()) {
            RetryDecision::GiveUp(text) => {
                let reason = format!("it stays unavailable: {text}");
                Err(self.server.error(reason))
            }
            RetryDecision::Again { after, say } => {
                say.into_iter().for_each(|text| self.say(&text));
                self.lifeline.rest(after);
                Ok(())
            }
        }
    }

    fn say(&self, text: &str) {
        let text = format!("policy server {}: {text}", self.server);
        self.lifeline.say(text);
    }

    /// Sends the start of the episode if the server does not know of it, and an observation.
    fn ask(&mut self, observation: &Value) -> Result<u64, CallError> {
        self.connect()?;
        let untold = self.episode.as_ref().filter(|episode| !episode.is_told);
        if let Some(task) = untold.map(|episode| Value::from(&episode.task)) {
            self.send(VlaEvalKind::EpisodeStart, Value::map([("task", task)]))?;
            if let Some(episode) = &mut self.episode {
                episode.is_told = true;
            }
        }
        self.send(VlaEvalKind::Observation, observation.clone())
    }

    fn connect(&mut self) -> Result<(), CallError> {
        if self.connection.is_some() {
            return Ok(());
        }
        self.connection = Some(WebsocketConnection::connect(
            &self.server,
            &self.lifeline,
            "Api-Key",
        )?);
        let greeted = self.greet();
        if greeted.is_err() {
            self.connection = None;
        }
        greeted
    }

    /// Exchanges `hello` with the server.
    fn greet(&mut self) -> Result<(), CallError> {
        let hello = Value::map([
            (
                "harness_version",
                concat!("rrun ", env!("CARGO_PKG_VERSION")).into(),
            ),
            ("protocol_version", VLA_EVAL_VERSION.into()),
        ]);
        self.send(VlaEvalKind::Hello, hello)?;
        let answer = self.receive(true)?;
        if answer.kind != VlaEvalKind::Hello {
            let kind = answer.kind.name();
            let reason = format!("it answers hello with {kind}{}", told(&answer.payload));
            return Err(CallError::Wrong(reason));
        }
        let hello = VlaEvalHello::read(&answer.payload).map_err(CallError::Wrong)?;
        match &self.hello {
            Some(first) if *first != hello => Err(CallError::Wrong(format!(
                "another model server than before: {} of {}, it was {} of {}",
                hello.model, hello.version, first.model, first.version
            ))),
            _ => {
                self.hello = Some(hello);
                Ok(())
            }
        }
    }

    /// Returns the action for the observation with this number. Actions for earlier ones, which a
    /// server with continuous inference sends, are skipped.
    fn answer(&mut self, seq: u64) -> Result<Value, CallError> {
        let mut answer = self.receive(true)?;
        loop {
            match answer.kind {
                VlaEvalKind::Action if answer.seq == seq => return Ok(answer.payload),
                VlaEvalKind::Action if answer.seq < seq => {}
                VlaEvalKind::Error => {
                    let reason = format!("it answers with an error{}", told(&answer.payload));
                    return Err(CallError::Wrong(reason));
                }
                kind => {
                    return Err(CallError::Wrong(format!(
                        "it answers observation {seq} with {} {}",
                        kind.name(),
                        answer.seq
                    )));
                }
            }
            answer = self.receive(false)?;
        }
    }

    fn send(&mut self, kind: VlaEvalKind, payload: Value) -> Result<u64, CallError> {
        self.seq += 1;
        let message = VlaEvalMessage {
            kind,
            payload,
            seq: self.seq,
        };
        let bytes: Bytes = message.write(unix_seconds());
        self.open()?.send(&bytes)?;
        Ok(self.seq)
    }

    /// Returns the next message; the timeout begins again if `is_first`.
    fn receive(&mut self, is_first: bool) -> Result<VlaEvalMessage, CallError> {
        let connection = self.open()?;
        let bytes = if is_first {
            connection.receive()?
        } else {
            connection.next_message()?
        };
        VlaEvalMessage::read(&bytes)
            .map_err(|err| CallError::Wrong(format!("its answer cannot be read: {err}")))
    }

    fn open(&mut self) -> Result<&mut WebsocketConnection, CallError> {
        let closed = || CallError::Away("it closed the connection".to_owned());
        self.connection.as_mut().ok_or_else(closed)
    }
}

/// Returns the text of an error for a message, if it has one.
fn told(payload: &Value) -> String {
    let text = payload.get("error").and_then(Value::as_text);
    text.map_or_else(String::new, |text| format!(": {text}"))
}
