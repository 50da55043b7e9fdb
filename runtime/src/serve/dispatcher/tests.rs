//! Requests of clients as rows of one policy, without sockets.

use std::path::{Path, PathBuf};

use jobs::serve_args::PolicyChoice;
use serde_json::{Value, json};
use tch::Device;

use super::*;
use crate::env::{EnvIndex, EnvSpec, Observation};
use crate::policy::tests::{env_with, frame};
use crate::policy::{PolicyRow, RowNoise, Window};
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
    slots: ClientSlots,
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
        card: ServedSpec::of_interface(facts, env.interface.clone()),
        env,
        slots: ClientSlots::default(),
    }
}

impl Served {
    /// Returns a row of an inference with a seed, whose states are all `value`, with pictures of
    /// one level.
    fn row(&self, value: f32, text: &str, seed: u64, inference: u64) -> PolicyRow {
        let mut seen = Observation::default();
        for (name, length) in &self.env.state {
            seen.state.insert(name.clone(), vec![value; *length]);
        }
        for camera in &self.env.cameras {
            let picture = frame([camera.height, camera.width], 90);
            seen.video.insert(camera.name.clone(), picture);
        }
        seen.language = text.into();
        let window = Window::new(Arc::new(seen));
        PolicyRow {
            seed,
            inference,
            window,
            ..crate::policy::tests::row(0, Observation::default())
        }
    }

    fn infer(&self, rows: Vec<PolicyRow>) -> Vec<Result<Vec<f32>, String>> {
        let (give, given) = std::sync::mpsc::channel();
        let give = move |inferred: Inferred| give.send(inferred.answers).unwrap();
        self.policy.infer(rows, 8, give);
        let answers = given.recv().unwrap().unwrap().into_iter();
        let values = |answer| Ok(chunk(answer, &self.card)?.values().to_vec());
        answers.map(values).collect()
    }

    /// Returns the answers to rows of clients that come together.
    fn ask(&mut self, rows: &[(u64, PolicyRow)]) -> Vec<Result<Vec<f32>, String>> {
        let rows = rows.iter();
        let seat = |(client, row): &_| self.slots.seat(ConnectionId(*client), row, true);
        let rows = rows.map(seat).collect();
        self.slots.give_back();
        self.infer(rows)
    }
}

#[test]
fn actions_are_those_of_an_evaluation_with_the_same_seed() {
    for policy in ["random_action", "scripted", "zero_action"] {
        let mut served = served(policy, json!({}), interface(&["front"], [1, 2]));
        let evaluated = |served: &Served, seed: u64, values: &[f32]| {
            let row = |(inference, value): (usize, &f32)| PolicyRow {
                env: EnvIndex(100),
                ..served.row(*value, "go", seed, inference as u64)
            };
            let rows = values.iter().enumerate().map(row);
            rows.map(|row| served.infer(vec![row]).remove(0).unwrap())
                .collect::<Vec<_>>()
        };
        let mut ask = |client: u64, value: f32, inference: u64| {
            let row = served.row(value, "go", 40 + client, inference);
            served.ask(&[(client, row)]).remove(0).unwrap()
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
            let rows = [5, 6].map(|seed| {
                let noise = Some(RowNoise::Seed(seed));
                let row = served.row(0.1, "go", seed, 0);
                (1, PolicyRow { noise, ..row })
            });
            let found: Result<Vec<_>, _> = served.ask(&rows).into_iter().collect();
            let wanted = [5, 6].map(|seed| evaluated(&served, seed, &[0.1]).remove(0));
            assert_eq!(found.unwrap(), wanted, "{policy}");
        }
    }
}

#[test]
fn clients_get_as_many_actions_as_they_are_promised_or_the_reason() {
    let card = crate::protocols::vla_eval::server_tests::card(&[0]);
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
        let row = served.row(0.1, "reach", 7, inference);
        alone.push(served.ask(&[(1, row)]).remove(0).unwrap());
    }
    assert_ne!(alone[0], alone[1]);
    for (inference, wanted) in alone.iter().enumerate() {
        let rows = [
            (2, served.row(0.1, "reach", 7, inference as u64)),
            // Never answered, it is always this client's first inference.
            (3, served.row(0.1, "look at <|image_pad|>", 7, 0)),
        ];
        let mut answers = served.ask(&rows);
        let refusal = answers.pop().unwrap().unwrap_err();
        assert!(refusal.contains("`look at <|image_pad|>`"), "{refusal}");
        assert_alike(&answers.pop().unwrap().unwrap(), wanted);
    }
    // The client that was refused starts where it would have started.
    let row = served.row(0.1, "reach", 7, 0);
    assert_alike(&served.ask(&[(3, row)]).remove(0).unwrap(), &alone[0]);
}
