//! Policies in another process: connections to a policy server that may start late, disappear, or
//! come back.
//!
//! ```text
//! RemotePolicy ─► Lane (one for each connection): asks again ─► ClientCodec: what is said
//!                   │                                              │ Exchange: messages
//!                   ├─► RetryPatience: when, and when to give up   ▼
//!                   └─► Lifeline: notes, cancellation            Link: ZeroMQ, or a websocket
//! ```
//! An unreachable server is tried again for `remote_retry_s`, with growing pauses; an error that
//! the server reports is not retried. Nothing waits forever: every step, a lookup of the server's
//! name included, has the timeout `remote_timeout_s`, and the eval loop can cut the lifeline.

mod explain;
mod lane;
mod lifeline;
mod link;
mod patience;
mod resolver;
#[cfg(test)]
pub(in crate::policy) mod script;
mod server;
mod tls;

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};

pub use lifeline::Lifeline;
pub use patience::{RetryDecision, RetryPatience};
pub use resolver::Resolver;
pub use server::{Defaults, PolicyServer, Token};
pub use tls::TlsTrust;
pub(crate) use tls::read_certificates;

use crate::env::EnvIndex;
use crate::policy::remote::lane::Lane;
use crate::policy::{Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError};

/// Maximum size of an answer in bytes; a chunk of actions has some kilobytes.
const LONGEST_ANSWER: usize = 256 << 20;

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
pub(in crate::policy) enum Transport {
    /// Over ZeroMQ, whose requests say the token themselves.
    Zmtp,
    /// Over a websocket, whose handshake says the token behind this word.
    Websocket(&'static str),
}

/// Messages to and from a server, which sends one for each that it gets unless its protocol says
/// otherwise.
pub(in crate::policy) trait Exchange {
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

/// What a client of a protocol says over one connection, and what it remembers of it.
pub(in crate::policy) trait ClientCodec: Sized {
    /// How its messages travel.
    const TRANSPORT: Transport;
    /// What meeting the server, beginning episodes and asking for chunks are called in errors.
    const STEPS: [&'static str; 3];
    /// Whether one request asks for all rows of a connection; otherwise one after the other does.
    const TOGETHER: bool = false;

    /// Returns the connection of an environment.
    fn lane(&self, env: EnvIndex) -> usize;

    /// Returns the same for another connection.
    fn another(&self) -> Self;

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

/// A server's policy that acts in one environment.
pub(in crate::policy) struct RemotePolicy<C: ClientCodec> {
    server: PolicyServer,
    lifeline: Lifeline,
    lanes: BTreeMap<usize, Lane<C>>,
    runtime: Runtime,
    facts: PolicyFacts,
}

impl<C: ClientCodec + 'static> RemotePolicy<C> {
    /// Connects to the server, waiting for one that comes late.
    ///
    /// # Errors
    /// Returns an error if it stays unreachable or does not speak the protocol.
    pub(in crate::policy) fn open(
        codec: C,
        server: &PolicyServer,
        lifeline: &Lifeline,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|err| server.error(format!("no sockets: {err}")))?;
        let mut first = Lane::new(codec, server, lifeline);
        runtime.block_on(first.meet())?;
        Ok(Box::new(Self {
            server: server.clone(),
            lifeline: lifeline.clone(),
            facts: first.codec.facts(),
            lanes: BTreeMap::from([(0, first)]),
            runtime,
        }))
    }
}

impl<C: ClientCodec> Policy for RemotePolicy<C> {
    fn facts(&self) -> PolicyFacts {
        self.facts.clone()
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let first = &self.lanes[&0].codec;
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            groups.entry(first.lane(row.env)).or_default().push(index);
        }
        let news = groups.keys().filter(|lane| !self.lanes.contains_key(lane));
        let new = |lane: &usize| {
            (
                *lane,
                Lane::new(first.another(), &self.server, &self.lifeline),
            )
        };
        let news: Vec<_> = news.map(new).collect();
        self.lanes.extend(news);
        let asked = self.lanes.iter_mut().filter_map(|(lane, connection)| {
            let of_lane: Vec<&PolicyRow> =
                groups.get(lane)?.iter().map(|row| &rows[*row]).collect();
            Some(async move { connection.ask(&of_lane).await })
        });
        let answered = self.runtime.block_on(join_all(asked));
        let mut answers: Vec<Option<RowAnswer>> = rows.iter().map(|_| None).collect();
        let mut failed = None;
        for (indices, of_lane) in groups.values().zip(answered) {
            match of_lane {
                Ok(of_lane) => {
                    for (index, answer) in indices.iter().zip(of_lane) {
                        answers[*index] = Some(answer);
                    }
                }
                Err(err) => failed = Some(err),
            }
        }
        match failed {
            None => Ok(answers.into_iter().flatten().collect()),
            Some(err) => {
                // Outstanding answers are of no use to a later call.
                self.lanes.values_mut().for_each(Lane::forget);
                Err(err)
            }
        }
    }
}

impl<C: ClientCodec> Drop for RemotePolicy<C> {
    /// Says that the connections end on purpose, which servers would otherwise log as an error.
    fn drop(&mut self) {
        let lanes = self.lanes.values_mut();
        self.runtime.block_on(join_all(lanes.map(Lane::farewell)));
    }
}
