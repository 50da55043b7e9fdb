//! The dispatcher between the connections and the policy thread: carries out the batcher's
//! decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::clock::now;
use crate::env::EnvIndex;
use crate::policy::{Chunk, Inferred, PolicyRow, PolicyThread, RowAnswer, RowError, RowNoise};
use crate::serve::batcher::{
    BatchLimits, Batcher, BatcherAction, BatcherEvent, RequestRows, Ticket,
};
use crate::serve::card::ServedSpec;
use crate::serve::client::{ClientRow, RowOf};
use crate::serve::error::RequestError;
use crate::serve::server::{DispatcherMessage, POLICY_IS_GONE, ServerState};
use crate::serve::slots::{ClientSlots, SlotEpisode};
use crate::serve::stats::Counted;

/// A request without an answer yet.
struct PendingRequest {
    rows: Vec<ClientRow>,
    /// Chunks of the rows that have been inferred.
    chunks: Vec<Chunk>,
    reply: oneshot::Sender<Result<Vec<Chunk>, RequestError>>,
    asked: Instant,
}

/// Runs the dispatcher until a stop was requested and all requests are answered. `say` is called
/// with what the policy tells the user. Returns why the policy is lost, if it is.
pub async fn run(
    server: Arc<ServerState>,
    limits: BatchLimits,
    policy: PolicyThread,
    mut inbox: mpsc::UnboundedReceiver<DispatcherMessage>,
    say: impl Fn(&str),
) -> Option<String> {
    let mut stop = server.stop.subscribe();
    let mut dispatcher = Dispatcher {
        server,
        limits,
        policy,
        seats: Seats::default(),
        inferring: None,
        parts: Vec::new(),
        open: BTreeMap::new(),
        next: 0,
        wake: None,
        loss: None,
    };
    let mut batcher = Batcher::new(limits);
    let mut is_stopping = false;
    loop {
        let wake = dispatcher.wake;
        let event = tokio::select! {
            inferred = finished(&mut dispatcher.inferring) => {
                dispatcher.inferring = None;
                dispatcher.policy.said().iter().for_each(|text| say(text));
                if let Ok(inferred) = inferred {
                    dispatcher.answer(inferred, &mut batcher);
                }
                BatcherEvent::Inferred
            }
            Some(message) = inbox.recv() => dispatcher.event(message),
            _ = stop.wait_for(Option::is_some), if !is_stopping => {
                is_stopping = true;
                BatcherEvent::Stop
            }
            () = tokio::time::sleep_until(wake.unwrap_or_else(now).into()), if wake.is_some() => BatcherEvent::Woken,
        };
        let actions = batcher.on(event, now());
        let is_finished = dispatcher.act(actions);
        dispatcher.server.stats.queued(batcher.queued());
        if is_finished {
            return dispatcher.loss;
        }
    }
}

/// Waits for the end of the current batch, or forever if there is none.
async fn finished(
    inferring: &mut Option<oneshot::Receiver<Inferred>>,
) -> Result<Inferred, oneshot::error::RecvError> {
    match inferring {
        Some(inferring) => inferring.await,
        None => std::future::pending().await,
    }
}

struct Dispatcher {
    server: Arc<ServerState>,
    limits: BatchLimits,
    policy: PolicyThread,
    seats: Seats,
    /// Receives the result of the current batch.
    inferring: Option<oneshot::Receiver<Inferred>>,
    /// Parts of the current batch.
    parts: Vec<RequestRows>,
    open: BTreeMap<Ticket, PendingRequest>,
    next: u64,
    wake: Option<Instant>,
    /// Why the policy can no longer infer in this process, once that is so.
    loss: Option<String>,
}

/// Where the policy keeps what it remembers of the clients' rows.
#[derive(Default)]
struct Seats {
    slots: ClientSlots,
    /// The slots that rows of the current batch have borrowed.
    borrowed: Vec<EnvIndex>,
}

impl Seats {
    /// Returns a row for the policy. Noise is the choice of clients that use a checkpoint's own
    /// keys; it is then drawn for all rows of a request alike.
    fn row(&mut self, row: &ClientRow, card: &ServedSpec) -> PolicyRow {
        let (slot, noise) = match &row.of {
            RowOf::Episode(episode) => {
                let slot = self.slots.slot(episode);
                let inference = match card.is_interface() {
                    true => slot.inference,
                    false => episode.inference,
                };
                (SlotEpisode { inference, ..slot }, None)
            }
            RowOf::Chosen(noise) => {
                let seed = match noise {
                    RowNoise::Seed(seed) => *seed,
                    RowNoise::Given(_) => 0,
                };
                let slot = self.slots.borrow(seed);
                self.borrowed.push(slot.env);
                (slot, (!card.is_interface()).then(|| noise.clone()))
            }
        };
        PolicyRow {
            env: slot.env,
            episode: slot.episode,
            seed: slot.seed,
            inference: slot.inference,
            window: row.window.clone(),
            continues: None,
            noise,
        }
    }

    fn give_back(&mut self) {
        for env in std::mem::take(&mut self.borrowed) {
            self.slots.give_back(env);
        }
    }
}

impl Dispatcher {
    fn event(&mut self, message: DispatcherMessage) -> BatcherEvent {
        match message {
            DispatcherMessage::Left(client) => {
                // The policy infers the current batch before it sees another row in these slots.
                self.seats.slots.leave(client);
                BatcherEvent::Left(client)
            }
            DispatcherMessage::Request {
                client,
                rows,
                reply,
                at,
            } => {
                let ticket = Ticket(self.next);
                self.next += 1;
                let count = rows.len();
                let request = PendingRequest {
                    rows,
                    chunks: Vec::new(),
                    reply,
                    asked: at,
                };
                self.open.insert(ticket, request);
                BatcherEvent::Request {
                    ticket,
                    client,
                    rows: count,
                }
            }
        }
    }

    /// Carries out the batcher's actions. Returns whether everything is answered and nothing will
    /// follow.
    fn act(&mut self, actions: Vec<BatcherAction>) -> bool {
        if !actions.is_empty() {
            self.wake = None;
        }
        let mut is_finished = false;
        for action in actions {
            match action {
                BatcherAction::Infer(parts) => self.infer(parts),
                BatcherAction::WakeAt(at) => self.wake = Some(at),
                BatcherAction::Finished => is_finished = true,
                BatcherAction::Refuse(ticket, reason) => {
                    if let Some(open) = self.open.remove(&ticket) {
                        let refusal = RequestError::rejected(Counted::Refused, reason);
                        // The client may have disconnected.
                        let _ = open.reply.send(Err(refusal));
                    }
                }
            }
        }
        // Drop the queued requests of clients that have disconnected.
        self.open.retain(|_, open| !open.reply.is_closed());
        is_finished
    }

    fn infer(&mut self, parts: Vec<RequestRows>) {
        let mut rows = Vec::new();
        let mut waits = Vec::new();
        self.parts.clear();
        for part in parts {
            let Some(open) = self
                .open
                .get(&part.ticket)
                .filter(|open| !open.reply.is_closed())
            else {
                continue;
            };
            if part.rows.start == 0 {
                waits.push(now().saturating_duration_since(open.asked));
            }
            let part_rows = open.rows.get(part.rows.clone()).unwrap_or_default().iter();
            rows.extend(part_rows.map(|row| self.seats.row(row, &self.server.card)));
            self.parts.push(part);
        }
        self.server.stats.batch(rows.len(), &waits, now());
        let (done, inferring) = oneshot::channel();
        self.inferring = Some(inferring);
        // The dispatcher is gone after the server has stopped.
        let give = move |inferred| drop(done.send(inferred));
        self.policy.infer(rows, self.limits.max_rows, give);
    }

    /// Processes the result of a batch, and answers the requests that are complete.
    fn answer(&mut self, inferred: Inferred, batcher: &mut Batcher) {
        self.server.stats.inferred(inferred.took, now());
        self.seats.give_back();
        let mut answers = match inferred.answers {
            Ok(answers) => Ok(answers.into_iter()),
            Err(err) => {
                if err.is_final() {
                    self.loss.get_or_insert_with(|| err.to_string());
                    self.server.end(POLICY_IS_GONE);
                }
                Err(err.to_string())
            }
        };
        for part in std::mem::take(&mut self.parts) {
            let card = Arc::clone(&self.server.card);
            let chunks: Result<Vec<Chunk>, String> = match &mut answers {
                Ok(answers) => {
                    let rows: Vec<_> = answers.by_ref().take(part.rows.len()).collect();
                    rows.into_iter()
                        .map(|answer| chunk(answer, &card))
                        .collect()
                }
                Err(reason) => Err(reason.clone()),
            };
            let Some(open) = self.open.get_mut(&part.ticket) else {
                continue;
            };
            let answer = match chunks {
                _ if self.loss.is_some() => Err(RequestError::new(POLICY_IS_GONE)),
                Err(reason) => Err(reason.into()),
                Ok(chunks) => {
                    open.chunks.extend(chunks);
                    if part.rows.end < open.rows.len() {
                        continue;
                    }
                    Ok(std::mem::take(&mut open.chunks))
                }
            };
            // After an error the rest of the request is dropped. The batcher starts no batch here,
            // because the current one still counts as running.
            batcher.on(BatcherEvent::Failed(part.ticket), now());
            if let Some(open) = self.open.remove(&part.ticket) {
                // The client may have disconnected.
                let _ = open.reply.send(answer);
            }
        }
    }
}

/// Returns the actions that clients are promised of a row.
///
/// # Errors
/// Returns the reason if there are none.
fn chunk(answer: RowAnswer, card: &ServedSpec) -> Result<Chunk, String> {
    let chunk = match answer {
        RowAnswer::Chunk(chunk) => chunk,
        RowAnswer::End => {
            let policy = card.policy;
            return Err(format!(
                "policy `{policy}` has ended the episode; `reset` starts another"
            ));
        }
        RowAnswer::Failed(RowError(reason)) => return Err(reason),
    };
    let (policy, found, wanted) = (card.policy, chunk.horizon(), card.horizon);
    match chunk.values().get(..wanted * chunk.action_dim()) {
        Some(values) => Ok(Chunk::new(chunk.action_dim(), values.to_vec())),
        None => Err(format!(
            "policy `{policy}` gave a chunk of {found} actions, expected at least {wanted}"
        )),
    }
}

#[cfg(test)]
mod tests;
