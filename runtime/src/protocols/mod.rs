//! The protocols of policy servers: what both sides say, without sockets and threads.
//!
//! ```text
//! policy::remote (lane, link) ─► ClientCodec ─┐   gr00t, openpi, vla_eval, xpolicylab   ┌─ wire
//! serve (peer, session) ───────► ServerCodec ─┴─► gr00t, openpi, vla_eval ──────────────┘
//! ```

pub mod gr00t;
pub(crate) mod observation;
pub(crate) mod openpi;
mod picture;
pub(crate) mod vla_eval;
pub mod xpolicylab;

#[cfg(test)]
mod halves_tests;
#[cfg(test)]
mod script_tests;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use jobs::policies::Server;
use jobs::settings::Settings;
use jobs::wiring::{Source, Wiring};
use wire::{Array, Value};

use crate::env::{EnvIndex, EnvSpec, Frame, Observation};
use crate::policy::remote::PolicyServer;
use crate::policy::{Chunk, PolicyError, PolicyFacts, PolicyRow, RowError, seen};

/// The reason why a request has no answer.
#[derive(Debug)]
pub enum CallError {
    /// The server is unreachable; the next attempt may succeed.
    Away(String),
    /// The request or the server is wrong; every attempt would fail like this.
    Wrong(String),
    /// The lifeline was cut.
    Cut,
    /// There is no request, because of what a row shows.
    Row(RowError),
    /// The server does not fit the job.
    Policy(PolicyError),
}

impl From<RowError> for CallError {
    fn from(err: RowError) -> Self {
        Self::Row(err)
    }
}

/// How the messages of a protocol travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Over ZeroMQ, whose requests say the token themselves.
    Zmtp,
    /// Over a websocket, whose handshake says the token behind this word.
    Websocket(&'static str),
}

/// Messages to and from a server, which sends one for each that it gets unless its protocol says
/// otherwise.
pub(crate) trait Exchange {
    /// Sends a message.
    async fn send(&mut self, message: Bytes) -> Result<(), CallError>;

    /// Receives a message, for which the server has its whole timeout from now on.
    async fn receive(&mut self) -> Result<Bytes, CallError>;

    /// Receives another message within what is left of the timeout.
    async fn receive_more(&mut self) -> Result<Bytes, CallError>;

    /// Sends a message and receives one.
    async fn ask(&mut self, message: Bytes) -> Result<Bytes, CallError> {
        self.send(message).await?;
        self.receive().await
    }
}

/// What a job says of a policy behind a server.
pub(crate) trait OnServer: Settings {
    /// What is said to the server.
    type Codec: ClientCodec;
    /// Default port without TLS.
    const PORT: u16;
    /// Default time limit for each of connecting, sending a request and receiving its answer.
    const TIMEOUT: Duration;
    /// Settings that the server decides, because it has the checkpoint.
    const OF_THE_SERVER: &[&str] = &[];

    /// Returns where the server is, and whose certificates are trusted.
    fn server(&self) -> (&Server, Option<&PathBuf>);

    /// Checks what needs no environment, and returns how many actions of a chunk are executed if
    /// the client does not cut its chunks itself.
    fn check(&self) -> Result<Option<usize>, PolicyError>;

    /// Returns the files whose contents decide the actions.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Connects the server's inputs and actions to an environment.
    fn client(self, server: &PolicyServer, env: &EnvSpec) -> Result<Self::Codec, PolicyError>;
}

/// What a client of a protocol says over one connection, and what it remembers of it. A clone of
/// one that has met its server speaks over another connection.
pub(crate) trait ClientCodec: Clone {
    /// How its messages travel.
    const TRANSPORT: Transport;
    /// What meeting the server, beginning episodes and asking for chunks are called in errors.
    const STEPS: [&'static str; 3];
    /// Whether one request asks for all rows of a connection; otherwise one after the other does.
    const TOGETHER: bool = false;

    /// Returns the connection of an environment.
    fn lane(&self, _env: EnvIndex) -> usize {
        0
    }

    /// Says what is said first over a new connection.
    async fn greet(&mut self, _link: &mut impl Exchange) -> Result<(), CallError> {
        Ok(())
    }

    /// Tells the server of episodes that are over, and of those that begin with these rows. It is
    /// called again if that fails on the way.
    async fn begin(
        &mut self,
        _link: &mut impl Exchange,
        _rows: &[&PolicyRow],
    ) -> Result<(), CallError> {
        Ok(())
    }

    /// Asks for the chunks of rows: of all together, or of one.
    async fn infer(
        &mut self,
        link: &mut impl Exchange,
        rows: &[&PolicyRow],
    ) -> Result<Vec<Chunk>, CallError>;

    /// Returns whether the server cannot go on with a row's episode over another connection.
    fn is_lost(&self, _row: &PolicyRow) -> bool {
        false
    }

    /// Says what is said last.
    async fn bye(&mut self, _link: &mut impl Exchange) -> Result<(), CallError> {
        Ok(())
    }

    /// Returns the properties of the policy, once the server was met.
    fn facts(&self) -> PolicyFacts;
}

/// Returns what the inputs of a server show, each with its name; `picture` says how a picture is
/// sent.
///
/// # Errors
/// Returns an error if the observation lacks a picture or a state.
fn inputs<'a>(
    wiring: &'a Wiring,
    observation: &Observation,
    picture: impl Fn(&Frame) -> Value,
) -> Result<Vec<(&'a str, Value)>, RowError> {
    let shown = |(key, source): (&'a str, &'a Source)| {
        let value = match source {
            Source::Camera(camera) => picture(seen::frame(camera, observation)?),
            Source::States(parts) => Array::vector(&seen::numbers(parts, observation)?).into(),
        };
        Ok((key, value))
    };
    wiring.inputs().map(shown).collect()
}

/// Reads the value of an answer.
fn read(answer: &Bytes) -> Result<Value, String> {
    match wire::read(answer) {
        Ok(message) => Ok(message.value),
        Err(err) => Err(format!("its answer cannot be read: {err}")),
    }
}

/// Returns shape and numbers of an array, or of a list of numbers or of such lists.
fn numbers(value: &Value) -> Option<(Vec<usize>, Vec<f32>)> {
    let row = |value: &Value| -> Option<Vec<f32>> {
        value.as_list()?.iter().map(Value::as_f32).collect()
    };
    let items = match value {
        Value::Array(array) => return Some((array.shape().to_vec(), array.to_f32())),
        other => other.as_list()?,
    };
    if !items.iter().any(|item| matches!(item, Value::List(_))) {
        return row(value).map(|row| (vec![row.len()], row));
    }
    let rows: Vec<Vec<f32>> = items.iter().map(row).collect::<Option<_>>()?;
    let width = rows.first()?.len();
    let is_even = rows.iter().all(|row| row.len() == width);
    is_even.then(|| (vec![rows.len(), width], rows.concat()))
}
