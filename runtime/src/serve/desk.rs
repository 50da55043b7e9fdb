//! Between the connections and the policy's thread: carries out what the batcher decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use crate::policy::served::{Actions, Question};
use crate::serve::batcher::{Action, Batcher, ClientId, Event, Limits, Ticket};
use crate::serve::house::House;
use crate::serve::now;
use crate::serve::policy_thread::{Batch, PolicyThread};

/// Why a server ends whose policy has panicked.
pub const POLICY_IS_GONE: &str = "the policy's thread has ended";

/// What a connection says.
#[derive(Debug)]
pub enum Message {
    /// It wants actions.
    Asked {
        /// Who.
        client: ClientId,
        /// Of how many rows.
        rows: usize,
        /// What it sees.
        question: Box<Question>,
        /// Where the answer goes.
        reply: oneshot::Sender<Result<Actions, String>>,
        /// When.
        at: Instant,
    },
    /// It is closed.
    Left(ClientId),
}

/// A request that is not answered.
struct Open {
    question: Question,
    rows: usize,
    reply: oneshot::Sender<Result<Actions, String>>,
    asked: Instant,
}

/// Runs until the end was asked for and everything is answered.
pub async fn run(house: Arc<House>, limits: Limits, policy: PolicyThread, mut inbox: mpsc::UnboundedReceiver<Message>) {
    let mut stop = house.stop.subscribe();
    let mut desk = Desk { house, limits, policy, inferring: None, open: BTreeMap::new(), next: 0, wake: None };
    let mut batcher = Batcher::new(limits);
    let mut is_stopping = false;
    loop {
        let wake = desk.wake;
        let event = tokio::select! {
            done = finished(&mut desk.inferring) => {
                desk.inferring = None;
                if done.is_err() {
                    desk.house.end(POLICY_IS_GONE);
                }
                Event::Inferred
            }
            Some(message) = inbox.recv() => desk.event(message),
            _ = stop.wait_for(Option::is_some), if !is_stopping => {
                is_stopping = true;
                Event::Stop
            }
            () = tokio::time::sleep_until(wake.unwrap_or_else(now).into()), if wake.is_some() => Event::Woken,
        };
        let actions = batcher.on(event, now());
        let is_finished = desk.act(actions);
        desk.house.stats.queued(batcher.queued());
        if is_finished {
            return;
        }
    }
}

/// Waits for the end of a batch, for ever if there is none.
async fn finished(inferring: &mut Option<oneshot::Receiver<()>>) -> Result<(), oneshot::error::RecvError> {
    match inferring {
        Some(inferring) => inferring.await,
        None => std::future::pending().await,
    }
}

struct Desk {
    house: Arc<House>,
    limits: Limits,
    policy: PolicyThread,
    /// Told when the batch is done; dropped when the policy's thread is.
    inferring: Option<oneshot::Receiver<()>>,
    open: BTreeMap<Ticket, Open>,
    next: u64,
    wake: Option<Instant>,
}

impl Desk {
    fn event(&mut self, message: Message) -> Event {
        match message {
            Message::Left(client) => Event::Left(client),
            Message::Asked { client, rows, question, reply, at } => {
                let ticket = Ticket(self.next);
                self.next += 1;
                self.open.insert(ticket, Open { question: *question, rows, reply, asked: at });
                Event::Asked { ticket, client, rows }
            }
        }
    }

    /// Whether everything is answered, and nothing will come.
    fn act(&mut self, actions: Vec<Action>) -> bool {
        if !actions.is_empty() {
            self.wake = None;
        }
        let mut is_finished = false;
        for action in actions {
            match action {
                Action::Infer(tickets) => self.infer(&tickets),
                Action::WakeAt(at) => self.wake = Some(at),
                Action::Finished => is_finished = true,
                Action::Refuse(ticket, refusal) => {
                    if let Some(open) = self.open.remove(&ticket) {
                        self.house.stats.refused();
                        // Who asked has gone.
                        let _ = open.reply.send(Err(refusal.to_string()));
                    }
                }
            }
        }
        // Requests of clients that left in the queue.
        self.open.retain(|_, open| !open.reply.is_closed());
        is_finished
    }

    fn infer(&mut self, tickets: &[Ticket]) {
        let open: Vec<Open> = tickets.iter().filter_map(|ticket| self.open.remove(ticket)).collect();
        let open: Vec<Open> = open.into_iter().filter(|open| !open.reply.is_closed()).collect();
        let waits: Vec<_> = open.iter().map(|open| now().saturating_duration_since(open.asked)).collect();
        self.house.stats.batch(open.iter().map(|open| open.rows).sum(), &waits, now());
        let (questions, replies): (Vec<_>, Vec<_>) = open.into_iter().map(|open| (open.question, open.reply)).unzip();
        let (done, inferring) = oneshot::channel();
        self.inferring = Some(inferring);
        let house = Arc::clone(&self.house);
        let give = move |answers: Vec<Result<Actions, String>>, took| {
            house.stats.inferred(took, now());
            for (reply, answer) in replies.into_iter().zip(answers) {
                // Who asked has gone.
                let _ = reply.send(answer);
            }
            // The desk is gone when the server ends.
            let _ = done.send(());
        };
        self.policy.infer(Batch { questions, max_rows: self.limits.max_rows, give: Box::new(give) });
    }
}
