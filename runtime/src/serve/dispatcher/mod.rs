//! The dispatcher between the connections and the policy thread: carries out the batcher's
//! decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use crate::clock::now;
use crate::policy::{Chunk, Inferred, PolicyThread, RowAnswer, RowError};
use crate::serve::batcher::{
    BatchLimits, Batcher, BatcherAction, BatcherEvent, RequestRows, Ticket,
};
use crate::serve::card::ServedSpec;
use crate::serve::request::RequestError;
use crate::serve::server::{DispatcherMessage, POLICY_IS_GONE, PolicyRequest, ServerState};
use crate::serve::slots::ClientSlots;
use crate::serve::stats::Counted;

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
        batcher: Batcher::new(limits),
        max_rows: limits.max_rows,
        policy,
        slots: ClientSlots::default(),
        parts: Vec::new(),
        open: BTreeMap::new(),
        next: 0,
        wake: None,
        loss: None,
    };
    let mut is_stopping = false;
    loop {
        let wake = dispatcher.wake;
        let event = tokio::select! {
            Some(message) = inbox.recv() => dispatcher.event(message),
            _ = stop.wait_for(Option::is_some), if !is_stopping => {
                is_stopping = true;
                BatcherEvent::Stop
            }
            () = tokio::time::sleep_until(wake.unwrap_or_else(now).into()), if wake.is_some() => {
                BatcherEvent::Woken
            }
        };
        dispatcher.policy.said().iter().for_each(|text| say(text));
        let actions = dispatcher.batcher.on(event, now());
        let is_finished = dispatcher.act(actions);
        dispatcher
            .server
            .stats()
            .queued(dispatcher.batcher.queued());
        if is_finished {
            return dispatcher.loss;
        }
    }
}

struct Dispatcher {
    server: Arc<ServerState>,
    batcher: Batcher,
    /// Maximum number of rows in a call of the policy.
    max_rows: usize,
    policy: PolicyThread,
    slots: ClientSlots,
    /// Parts of the current batch.
    parts: Vec<RequestRows>,
    open: BTreeMap<Ticket, PolicyRequest>,
    next: u64,
    wake: Option<Instant>,
    /// Why the policy can no longer infer in this process, once that is so.
    loss: Option<String>,
}

impl Dispatcher {
    fn event(&mut self, message: DispatcherMessage) -> BatcherEvent {
        match message {
            DispatcherMessage::Inferred(inferred) => {
                self.answer(inferred);
                BatcherEvent::Inferred
            }
            DispatcherMessage::Left(client) => {
                // The policy infers the current batch before it sees another row in these slots.
                self.slots.leave(client);
                BatcherEvent::Left(client)
            }
            DispatcherMessage::Request(request) => {
                let ticket = Ticket(self.next);
                self.next += 1;
                let event = BatcherEvent::Request {
                    ticket,
                    client: request.client,
                    rows: request.rows.len(),
                };
                self.open.insert(ticket, request);
                event
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
                    let refusal = RequestError::rejected(Counted::Refused, reason);
                    self.reply(ticket, Err(refusal));
                }
            }
        }
        // Drop the queued requests of clients that have disconnected.
        self.open.retain(|_, open| !open.reply.is_closed());
        is_finished
    }

    fn reply(&mut self, ticket: Ticket, answer: Result<Vec<Chunk>, RequestError>) {
        if let Some(open) = self.open.remove(&ticket) {
            // The client may have disconnected.
            let _ = open.reply.send(answer);
        }
    }

    /// Has these parts of requests inferred together.
    fn infer(&mut self, parts: Vec<RequestRows>) {
        let (mut rows, mut waits) = (Vec::new(), Vec::new());
        self.parts.clear();
        for part in parts {
            let open = self.open.get(&part.ticket);
            let Some(open) = open.filter(|open| !open.reply.is_closed()) else {
                continue;
            };
            if part.rows.start == 0 {
                waits.push(now().saturating_duration_since(open.at));
            }
            let (client, is_interface) = (open.client, self.server.card.interface.is_some());
            let seat = |row| self.slots.seat(client, row, is_interface);
            rows.extend(open.rows[part.rows.clone()].iter().map(seat));
            self.parts.push(part);
        }
        self.server.stats().batch(rows.len(), &waits, now());
        let server = Arc::clone(&self.server);
        let give = move |inferred| server.tell(DispatcherMessage::Inferred(inferred));
        self.policy.infer(rows, self.max_rows, give);
    }

    /// Processes the result of a batch, and answers the requests that are complete.
    fn answer(&mut self, inferred: Inferred) {
        self.server.stats().inferred(inferred.took, now());
        self.slots.give_back();
        let mut answers = inferred.answers;
        if let Err(err) = &answers
            && err.is_final()
        {
            self.loss.get_or_insert_with(|| err.to_string());
            self.server.end(POLICY_IS_GONE);
        }
        for part in std::mem::take(&mut self.parts) {
            let chunks: Result<Vec<_>, _> = match &mut answers {
                Ok(answers) => {
                    let rows = answers.drain(..part.rows.len());
                    rows.map(|answer| chunk(answer, &self.server.card))
                        .collect()
                }
                Err(err) => Err(err.to_string()),
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
            self.batcher.on(BatcherEvent::Failed(part.ticket), now());
            self.reply(part.ticket, answer);
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
            let policy = card.facts.policy;
            return Err(format!(
                "policy `{policy}` has ended the episode; `reset` starts another"
            ));
        }
        RowAnswer::Failed(RowError(reason)) => return Err(reason),
    };
    let (policy, found, wanted) = (card.facts.policy, chunk.horizon(), card.horizon);
    match chunk.values().get(..wanted * chunk.action_dim()) {
        Some(values) => Ok(Chunk::new(chunk.action_dim(), values.to_vec())),
        None => Err(format!(
            "policy `{policy}` gave a chunk of {found} actions, expected at least {wanted}"
        )),
    }
}

#[cfg(test)]
mod tests;
