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
mod link;
mod patience;
mod server;
mod tls;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

pub(crate) use server::{PolicyServer, Token};
pub(crate) use tls::read_certificates;

use crate::policy::remote::lane::Lane;
use crate::policy::{Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer};
use crate::protocols::ClientCodec;

/// A server's policy that acts in one environment.
pub(in crate::policy) struct RemotePolicy<C: ClientCodec> {
    server: PolicyServer,
    lifeline: Lifeline,
    /// What is said over the connections that are opened later.
    codec: C,
    lanes: BTreeMap<usize, Lane<C>>,
    runtime: Runtime,
    facts: PolicyFacts,
}

impl<C: ClientCodec> RemotePolicy<C> {
    /// Connects to the server, waiting for one that comes late. `notes` are for the user.
    ///
    /// # Errors
    /// Returns an error if it stays unreachable or does not speak the protocol.
    pub(in crate::policy) fn open(
        codec: C,
        server: PolicyServer,
        notes: Vec<String>,
        lifeline: &Lifeline,
    ) -> Result<Self, PolicyError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|err| server.error(format!("no sockets: {err}")))?;
        let mut first = Lane::new(codec, &server, lifeline);
        runtime.block_on(first.meet())?;
        let mut facts = first.codec.facts();
        let path = ("policy_path", server.to_string().into());
        facts.reported.insert(0, path);
        facts.notes.splice(..0, notes);
        Ok(Self {
            server,
            lifeline: lifeline.clone(),
            codec: first.codec.clone(),
            lanes: BTreeMap::from([(0, first)]),
            runtime,
            facts,
        })
    }
}

impl<C: ClientCodec> Policy for RemotePolicy<C> {
    fn facts(&self) -> PolicyFacts {
        self.facts.clone()
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            let lane = self.codec.lane(row.env);
            groups.entry(lane).or_default().push(index);
            let new = || Lane::new(self.codec.clone(), &self.server, &self.lifeline);
            self.lanes.entry(lane).or_insert_with(new);
        }
        let asked = self.lanes.iter_mut().filter_map(|(lane, connection)| {
            let of_lane: Vec<&PolicyRow> =
                groups.get(lane)?.iter().map(|row| &rows[*row]).collect();
            Some(async move { connection.ask(&of_lane).await })
        });
        let answered = self.runtime.block_on(join_all(asked));
        let (mut answers, mut failed) = (BTreeMap::new(), None);
        for (indices, of_lane) in groups.into_values().zip(answered) {
            match of_lane {
                Ok(of_lane) => answers.extend(indices.into_iter().zip(of_lane)),
                Err(err) => failed = Some(err),
            }
        }
        match failed {
            None => Ok(answers.into_values().collect()),
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

/// A policy's end of the channel between it, which waits for a server, and the eval loop, which
/// waits for the policy: it carries messages to the user, and the loop can cut it to end all
/// waiting.
/// Clones share the same line.
#[derive(Clone, Debug)]
pub struct Lifeline {
    cut: Arc<watch::Sender<bool>>,
    words: Sender<String>,
}

impl Lifeline {
    /// Creates a line without a receiver for its messages.
    pub fn alone() -> Self {
        Self::heard().0
    }

    /// Creates a line and the receiver of its messages.
    pub fn heard() -> (Self, Receiver<String>) {
        let (words, heard) = channel();
        let cut = Arc::new(watch::Sender::new(false));
        (Self { cut, words }, heard)
    }

    /// Sends a message to the user.
    pub fn say(&self, text: String) {
        // The receiver may be gone.
        self.words.send(text).ok();
    }

    /// Ends all waiting on this line, now and later.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Returns whether the line was cut.
    pub fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    /// Waits until the line is cut.
    pub async fn until_cut(&self) {
        // The sender lives as long as this line.
        self.cut.subscribe().wait_for(|is_cut| *is_cut).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cut_is_seen_before_and_after_it() {
        let line = Lifeline::alone();
        let other = line.clone();
        let waiting = tokio::spawn(async move { other.until_cut().await });
        tokio::task::yield_now().await;
        line.cut();
        waiting.await.unwrap();
        line.until_cut().await;
        assert!(line.is_cut());
    }

    #[test]
    fn words_come_out_at_the_other_end() {
        let (line, heard) = Lifeline::heard();
        line.clone().say("the server is away".to_owned());
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["the server is away"]);
        drop(heard);
        line.say("nobody listens".to_owned());
    }
}
