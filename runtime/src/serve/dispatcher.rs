//! The dispatcher between the connections and the policy thread: carries out the batcher's
//! decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::clock::now;
use crate::policy::PolicyError;
use crate::policy::served::{Actions, ClientId, PolicyRequest};
use crate::serve::batcher::{
    BatchLimits, Batcher, BatcherAction, BatcherEvent, RequestRows, Ticket,
};
use crate::serve::connections::ConnectionId;
use crate::serve::error::RequestError;
use crate::serve::server::{DispatcherMessage, POLICY_IS_GONE, ServerState};
use crate::serve::serving_thread::{InferredBatch, RequestBatch, ServingThread};
use crate::serve::stats::Counted;

/// A request without an answer yet.
struct PendingRequest {
    request: PolicyRequest,
    rows: usize,
    /// Actions of the rows that have been inferred.
    actions: Option<Actions>,
    reply: oneshot::Sender<Result<Actions, RequestError>>,
    asked: Instant,
}

/// Runs the dispatcher until a stop was requested and all requests are answered.
pub async fn run(
    server: Arc<ServerState>,
    limits: BatchLimits,
    policy: ServingThread,
    mut inbox: mpsc::UnboundedReceiver<DispatcherMessage>,
) {
    let mut stop = server.stop.subscribe();
    let mut dispatcher = Dispatcher {
        server,
        limits,
        policy,
        inferring: None,
        parts: Vec::new(),
        open: BTreeMap::new(),
        asked: BTreeSet::new(),
        next: 0,
        wake: None,
    };
    let mut batcher = Batcher::new(limits);
    let mut is_stopping = false;
    loop {
        let wake = dispatcher.wake;
        let event = tokio::select! {
            inferred = finished(&mut dispatcher.inferring) => {
                dispatcher.inferring = None;
                match inferred {
                    Ok(inferred) => dispatcher.answer(inferred, &mut batcher),
                    Err(_) => dispatcher.server.end(POLICY_IS_GONE),
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
            return;
        }
    }
}

/// Waits for the end of the current batch, or forever if there is none.
async fn finished(
    inferring: &mut Option<oneshot::Receiver<InferredBatch>>,
) -> Result<InferredBatch, oneshot::error::RecvError> {
    match inferring {
        Some(inferring) => inferring.await,
        None => std::future::pending().await,
    }
}

struct Dispatcher {
    server: Arc<ServerState>,
    limits: BatchLimits,
    policy: ServingThread,
    /// Receives the result of the current batch; closed if the policy thread has ended.
    inferring: Option<oneshot::Receiver<InferredBatch>>,
    /// Parts of the current batch.
    parts: Vec<RequestRows>,
    open: BTreeMap<Ticket, PendingRequest>,
    /// Connected clients that the policy may know.
    asked: BTreeSet<ConnectionId>,
    next: u64,
    wake: Option<Instant>,
}

impl Dispatcher {
    fn event(&mut self, message: DispatcherMessage) -> BatcherEvent {
        match message {
            DispatcherMessage::Left(client) => {
                if self.asked.remove(&client) {
                    self.policy.leave(ClientId(client.0));
                }
                BatcherEvent::Left(client)
            }
            DispatcherMessage::Request {
                client,
                rows,
                request,
                reply,
                at,
            } => {
                let ticket = Ticket(self.next);
                self.next += 1;
                self.asked.insert(client);
                self.open.insert(
                    ticket,
                    PendingRequest {
                        request: *request,
                        rows,
                        actions: None,
                        reply,
                        asked: at,
                    },
                );
                BatcherEvent::Request {
                    ticket,
                    client,
                    rows,
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
        let mut requests = Vec::with_capacity(parts.len());
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
            requests.push(open.request.part(part.rows.clone()));
            self.parts.push(part);
        }
        let rows = self.parts.iter().map(|part| part.rows.len()).sum();
        self.server.stats.batch(rows, &waits, now());
        let (done, inferring) = oneshot::channel();
        self.inferring = Some(inferring);
        // The dispatcher is gone after the server has stopped.
        let give = move |inferred| drop(done.send(inferred));
        self.policy.infer(RequestBatch {
            requests,
            max_rows: self.limits.max_rows,
            give: Box::new(give),
        });
    }

    /// Processes the result of a batch, and answers the requests that are complete.
    fn answer(&mut self, InferredBatch { answers, took }: InferredBatch, batcher: &mut Batcher) {
        self.server.stats.inferred(took, now());
        for (part, answer) in std::mem::take(&mut self.parts).into_iter().zip(answers) {
            let Some(open) = self.open.get_mut(&part.ticket) else {
                continue;
            };
            let answer = match (answer, open.actions.take()) {
                (Err(err), _) => Err(RequestError::new(PolicyError::from(err))),
                (Ok(actions), None) => Ok(actions),
                (Ok(actions), Some(mut all)) => {
                    all.append(actions);
                    Ok(all)
                }
            };
            match answer {
                Ok(actions) if part.rows.end < open.rows => open.actions = Some(actions),
                answer => {
                    // After an error the rest of the request is dropped. The batcher starts no
                    // batch here, because the current one still counts as running.
                    batcher.on(BatcherEvent::Failed(part.ticket), now());
                    if let Some(open) = self.open.remove(&part.ticket) {
                        // The client may have disconnected.
                        let _ = open.reply.send(answer);
                    }
                }
            }
        }
    }
}
