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
mod tests {
    use std::path::{Path, PathBuf};

    use jobs::serve_args::PolicyChoice;
    use serde_json::{Value, json};
    use tch::Device;

    use super::*;
    use crate::env::{EnvSpec, Observation};
    use crate::policy::Window;
    use crate::policy::tests::{env_with, frame};
    use crate::serve::client::ClientEpisodeRow;
    use crate::serve::connections::ConnectionId;

    /// Returns an interface with some cameras and all states of the table-top.
    fn interface(cameras: &[&str], size: [u32; 2]) -> EnvSpec {
        let mut env = env_with(cameras, size);
        // The expert reads both fingers.
        let mut states = env.interface.state.iter_mut();
        let gripper = states.find(|(name, _)| name == "gripper_position");
        gripper.unwrap().1 = 2;
        env
    }

    /// A policy that answers the rows of clients.
    struct Served {
        policy: PolicyThread,
        card: ServedSpec,
        env: EnvSpec,
        seats: Seats,
    }

    fn served(policy: &str, config: Value, env: EnvSpec) -> Served {
        let choice = PolicyChoice {
            policy_type: policy.to_owned(),
            config: config.as_object().unwrap().clone(),
        };
        let policy = PolicyThread::start(Device::Cpu).unwrap();
        let facts = policy.make(choice, Some(&env), None, |_| true).unwrap();
        Served {
            policy,
            card: ServedSpec::of_interface(facts, &env),
            env,
            seats: Seats::default(),
        }
    }

    impl Served {
        /// Returns a row whose states are all `value`, with pictures of one level.
        fn row(&self, value: f32, text: &str, of: RowOf) -> ClientRow {
            let mut seen = Observation::empty();
            for (name, length) in &self.env.state {
                seen.state.insert(name.clone(), vec![value; *length]);
            }
            for camera in &self.env.cameras {
                let picture = frame([camera.height, camera.width], 90);
                seen.video.insert(camera.name.clone(), picture);
            }
            seen.language = text.into();
            let window = Window::new(Arc::new(seen));
            ClientRow { window, of }
        }

        fn infer(&self, rows: Vec<PolicyRow>) -> Vec<Result<Vec<f32>, String>> {
            let (give, given) = std::sync::mpsc::channel();
            let give = move |inferred: Inferred| give.send(inferred.answers).unwrap();
            self.policy.infer(rows, 8, give);
            let answers = given.recv().unwrap().unwrap().into_iter();
            let values = |answer| Ok(chunk(answer, &self.card)?.values().to_vec());
            answers.map(values).collect()
        }

        /// Returns the answers to rows that come together.
        fn ask(&mut self, rows: &[ClientRow]) -> Vec<Result<Vec<f32>, String>> {
            let rows = rows.iter().map(|row| self.seats.row(row, &self.card));
            let rows = rows.collect();
            self.seats.give_back();
            self.infer(rows)
        }
    }

    fn nth(client: u64, seed: u64, inference: u64) -> RowOf {
        RowOf::Episode(ClientEpisodeRow {
            client: ConnectionId(client),
            row: 0,
            number: 0,
            seed,
            inference,
        })
    }

    #[test]
    fn actions_are_those_of_an_evaluation_with_the_same_seed() {
        for policy in ["random_action", "scripted", "zero_action"] {
            let mut served = served(policy, json!({}), interface(&["front"], [1, 2]));
            let evaluated = |served: &Served, seed: u64, values: &[f32]| {
                let row = |(inference, value): (usize, &f32)| PolicyRow {
                    seed,
                    inference: inference as u64,
                    window: served.row(*value, "go", nth(0, 0, 0)).window,
                    ..crate::policy::tests::row(100, Observation::empty())
                };
                let rows = values.iter().enumerate().map(row);
                rows.map(|row| served.infer(vec![row]).remove(0).unwrap())
                    .collect::<Vec<_>>()
            };
            let mut ask = |client: u64, value: f32, inference: u64| {
                let row = served.row(value, "go", nth(client, 40 + client, inference));
                served.ask(&[row]).remove(0).unwrap()
            };
            // Two clients take turns.
            let [one, other, more] = [ask(1, 0.1, 0), ask(2, 0.2, 0), ask(1, 0.3, 1)];
            assert_eq!(
                [one, more].to_vec(),
                evaluated(&served, 41, &[0.1, 0.3]),
                "{policy}"
            );
            assert_eq!([other].to_vec(), evaluated(&served, 42, &[0.2]), "{policy}");
            // A seed for one request is the start of an episode.
            for _ in 0..2 {
                let chosen = |seed| RowOf::Chosen(RowNoise::Seed(seed));
                let rows = [5, 6].map(|seed| served.row(0.1, "go", chosen(seed)));
                let found: Result<Vec<_>, _> = served.ask(&rows).into_iter().collect();
                let wanted = [5, 6].map(|seed| evaluated(&served, seed, &[0.1]).remove(0));
                assert_eq!(found.unwrap(), wanted, "{policy}");
            }
            assert_eq!(
                served.seats.slots.borrow(0).env,
                EnvIndex(2),
                "all are given back"
            );
        }
    }

    #[test]
    fn only_clients_of_a_checkpoints_own_keys_choose_its_noise() {
        let mut card = crate::serve::vla_eval::tests::card(&[0]);
        let window = Window::new(Arc::new(Observation::empty()));
        let given = RowOf::Chosen(RowNoise::Given(vec![1.0]));
        let rows = [given, nth(7, 3, 5)].map(|of| ClientRow {
            window: window.clone(),
            of,
        });
        let mut seats = Seats::default();
        let found = rows.each_ref().map(|row| seats.row(row, &card));
        let found = found.map(|row| (row.seed, row.inference, row.noise));
        let noise = Some(RowNoise::Given(vec![1.0]));
        assert_eq!(found, [(0, 0, noise), (3, 5, None)]);
        card.action_names = vec!["x".to_owned()];
        let row = seats.row(&rows[0], &card);
        assert_eq!((row.seed, row.noise), (0, None));
    }

    #[test]
    fn clients_get_as_many_actions_as_they_are_promised_or_the_reason() {
        let card = crate::serve::vla_eval::tests::card(&[0]);
        let actions = |steps: usize| RowAnswer::Chunk(Chunk::new(4, vec![1.0; 4 * steps]));
        let promised = Chunk::new(4, vec![1.0; 8]);
        assert_eq!(chunk(actions(3), &card), Ok(promised.clone()));
        assert_eq!(chunk(actions(2), &card), Ok(promised));
        for (answer, reason) in [
            (
                actions(1),
                "policy `gr00t` gave a chunk of 1 actions, expected at least 2",
            ),
            (
                RowAnswer::End,
                "policy `gr00t` has ended the episode; `reset` starts another",
            ),
            (RowAnswer::Failed(RowError("blind".to_owned())), "blind"),
        ] {
            assert_eq!(chunk(answer, &card), Err(reason.to_owned()));
        }
    }

    /// Returns the demo's checkpoint, whose instructions are taken as they are.
    fn verbatim(folder: &Path) -> PathBuf {
        let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites/demo_policy");
        let path = folder.join("policy");
        std::fs::create_dir(&path).unwrap();
        for entry in std::fs::read_dir(demo).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            if name == "processor_config.json" {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let [from, to] = [true, false].map(|is| format!("\"formalize_language\": {is}"));
                std::fs::write(path.join(name), text.replace(&from, &to)).unwrap();
            } else {
                std::os::unix::fs::symlink(entry.path(), path.join(name)).unwrap();
            }
        }
        path
    }

    #[track_caller]
    fn assert_alike(found: &[f32], wanted: &[f32]) {
        let apart = found.iter().zip(wanted).map(|(a, b)| (a - b).abs());
        let apart = apart.fold(0.0, f32::max);
        assert!(apart < 1e-4, "they are {apart} apart: the noise has moved");
    }

    #[test]
    fn an_instruction_that_a_checkpoint_refuses_shifts_the_noise_of_no_client() {
        let folder = tempfile::tempdir().unwrap();
        let config = json!({"model_path": verbatim(folder.path())});
        let env = interface(&["front", "wrist"], [96, 96]);
        let mut served = served("gr00t", config, env);
        let mut alone = Vec::new();
        for inference in 0..3 {
            let row = served.row(0.1, "reach", nth(1, 7, inference));
            alone.push(served.ask(&[row]).remove(0).unwrap());
        }
        assert_ne!(alone[0], alone[1]);
        for (inference, wanted) in alone.iter().enumerate() {
            let rows = [
                served.row(0.1, "reach", nth(2, 7, inference as u64)),
                // Never answered, it is always this client's first inference.
                served.row(0.1, "look at <|image_pad|>", nth(3, 7, 0)),
            ];
            let mut answers = served.ask(&rows);
            let refusal = answers.pop().unwrap().unwrap_err();
            assert!(refusal.contains("`look at <|image_pad|>`"), "{refusal}");
            assert_alike(&answers.pop().unwrap().unwrap(), wanted);
        }
        // The client that was refused starts where it would have started.
        let row = served.row(0.1, "reach", nth(3, 7, 0));
        assert_alike(&served.ask(&[row]).remove(0).unwrap(), &alone[0]);
    }
}
