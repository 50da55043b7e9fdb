//! Tests with policies that need no model, and with one that does as it is told.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gr00t::client::{PyArray, PyObject};
use jobs::serve_args::PolicyChoice;
use serde_json::{Map, Value, json};

use super::*;
use crate::env::{CameraSpec, Observation};
use crate::policy::served::{ClientEpisodeRow, serve};
use crate::policy::tests::{chunks, env_with, row};
use crate::policy::{Checkpoints, Chunk, Lifeline};
use tch::Device;

/// Returns the interface of the tests: one camera, all states of the table-top.
fn interface() -> EnvSpec {
    let mut env = env_with(&["front"], [1, 2]);
    // The expert reads both fingers.
    let mut states = env.state.iter_mut();
    let gripper = states.find(|(name, _)| name == "gripper_position");
    gripper.unwrap().1 = 2;
    env
}

fn served(policy_type: &str, config: Value, env: &EnvSpec) -> Box<dyn Served> {
    let choice = PolicyChoice {
        policy_type: policy_type.to_owned(),
        config: config.as_object().unwrap().clone(),
    };
    let mut checkpoints = Checkpoints::new(Device::Cpu);
    serve(&choice, Some(env), &mut checkpoints, &Lifeline::alone()).unwrap()
}

fn floats(shape: &[usize], values: &[f32]) -> PyObject {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    PyObject::Array(PyArray::new("float32", 4, shape, bytes.into()).unwrap())
}

fn map(members: Vec<(String, PyObject)>) -> PyObject {
    PyObject::Map(members)
}

/// Returns a request whose states are all `values[row][step]`.
fn request(values: &[&[f32]], noise: Vec<Noise>) -> PolicyRequest {
    request_of(&interface(), values, 7, "go", noise)
}

/// Returns a request for the cameras and states of an environment, with pictures of one level.
fn request_of(
    env: &EnvSpec,
    values: &[&[f32]],
    level: u8,
    text: &str,
    noise: Vec<Noise>,
) -> PolicyRequest {
    let (rows, steps) = (values.len(), values[0].len());
    let state = |(name, length): &(String, usize)| {
        let repeated = values.iter().flat_map(|row| row.iter());
        let all: Vec<f32> = repeated.flat_map(|value| vec![*value; *length]).collect();
        (name.clone(), floats(&[rows, steps, *length], &all))
    };
    let picture = |camera: &CameraSpec| {
        let shape = [
            rows,
            steps,
            camera.height as usize,
            camera.width as usize,
            3,
        ];
        let bytes = vec![level; shape.iter().product()];
        let picture = PyArray::new("uint8", 1, &shape, bytes.into());
        (camera.name.clone(), PyObject::Array(picture.unwrap()))
    };
    let text = PyObject::List(vec![PyObject::Text(text.to_owned())]);
    let language = (LANGUAGE_KEY.to_owned(), PyObject::List(vec![text; rows]));
    let parts = [
        ("video", map(env.cameras.iter().map(picture).collect())),
        ("state", map(env.state.iter().map(state).collect())),
        ("language", map(vec![language])),
    ];
    let observation = map(parts.map(|(name, part)| (name.to_owned(), part)).into());
    PolicyRequest { observation, noise }
}

fn episode(client: u64, number: u64, seed: u64) -> Noise {
    nth(client, number, seed, 0)
}

fn nth(client: u64, number: u64, seed: u64, inference: u64) -> Noise {
    Noise::Episode(ClientEpisodeRow {
        client: ClientId(client),
        row: 0,
        number,
        seed,
        inference,
    })
}

/// Returns what an evaluation's policy gives for an observation whose states are all `value`, in
/// the calls of an episode.
fn evaluated(policy_type: &str, seed: u64, values: &[f32]) -> Vec<f32> {
    let (env, mut checkpoints) = (interface(), Checkpoints::new(Device::Cpu));
    let lifeline = Lifeline::alone();
    let made = crate::policy::make(policy_type, &Map::new(), &env, &mut checkpoints, &lifeline);
    let mut made = made.unwrap();
    let mut actions = Vec::new();
    for (inference, value) in values.iter().enumerate() {
        let mut observation = Observation::empty();
        let states = interface().interface.state.into_iter();
        observation.state = states
            .map(|(name, length)| (name, vec![*value; length]))
            .collect();
        let row = PolicyRow {
            seed,
            inference: inference as u64,
            ..row(3, observation)
        };
        let chunk = chunks(made.policy.act(&[row])).remove(0);
        actions.extend(
            (0..made.facts.chunk_length).flat_map(|index| chunk.action(index).unwrap().to_vec()),
        );
    }
    actions
}

/// Returns the answers to requests that come together.
fn answers(
    server: &mut dyn Served,
    requests: &[PolicyRequest],
) -> Vec<Result<Actions, InferenceError>> {
    server.answer(requests, 8).unwrap()
}

/// Returns the answer to a request of its own.
fn answer(server: &mut dyn Served, request: PolicyRequest) -> Result<Actions, InferenceError> {
    server.answer(&[request], 8).unwrap().remove(0)
}

fn values(answer: Result<Actions, InferenceError>) -> Vec<f32> {
    answer.unwrap().keys.remove(0).values
}

#[test]
fn actions_are_those_of_an_evaluation_with_the_same_seed() {
    for policy_type in ["random_action", "scripted", "zero_action"] {
        let mut server = served(policy_type, json!({}), &interface());
        let mut ask = |client: u64, value: f32, inference: u64| {
            let request = request(&[&[value]], vec![nth(client, 0, 40 + client, inference)]);
            values(answer(server.as_mut(), request))
        };
        // Two clients take turns.
        let [one, other, more] = [ask(1, 0.1, 0), ask(2, 0.2, 0), ask(1, 0.3, 1)];
        let wanted = evaluated(policy_type, 41, &[0.1, 0.3]);
        assert_eq!([one, more].concat(), wanted, "{policy_type}");
        assert_eq!(other, evaluated(policy_type, 42, &[0.2]), "{policy_type}");
    }
}

#[test]
fn a_seed_for_one_request_is_the_start_of_an_episode() {
    let mut server = served("random_action", json!({}), &interface());
    for _ in 0..2 {
        let request = request(&[&[0.1], &[0.1]], vec![Noise::Seed(5), Noise::Seed(6)]);
        let found = values(answer(server.as_mut(), request));
        let wanted = [5, 6].map(|seed| evaluated("random_action", seed, &[0.1]));
        assert_eq!(found, wanted.concat());
    }
}

#[test]
fn clients_learn_the_names_and_sizes_of_the_interface() {
    let card = served("scripted", json!({}), &interface()).card();
    assert_eq!((card.policy, card.horizon), ("scripted", 4));
    // The expert does not look at pictures.
    assert!(card.modalities.video.keys.is_empty() && card.view_sizes.is_empty());
    assert_eq!(card.modalities.action.delta_indices, [0, 1, 2, 3]);
    assert_eq!(card.states[0], ("joint_position".to_owned(), Some(7)));
    assert_eq!(card.action_names[6], "gripper");
}

/// A policy with one action, the state of the row, that fails and ends as a row's state says.
#[derive(Default)]
struct Obedient {
    looks_back: usize,
    calls: Rc<RefCell<Vec<String>>>,
}

/// States of which the policy makes failures.
const FAILS: f32 = 100.0;
const ENDS: f32 = 200.0;
const RAISES: f32 = 300.0;

impl Policy for Obedient {
    fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            horizon: 1,
            chunk_length: 1,
            needs_video: true,
            looks_back: self.looks_back,
            ..PolicyFacts::default()
        }
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let x = |row: &PolicyRow| row.now().state["eef_position"][0];
        assert!(rows.iter().all(|row| &*row.now().language == "go"));
        let picture = |row: &PolicyRow| row.now().video["front"].rgb == vec![7; 6];
        assert!(rows.iter().all(picture));
        for row in rows {
            let xs = |seen: &Observation| seen.state["eef_position"][0];
            let seen: Vec<_> = row.window.at(&[-1, 0]).into_iter().map(xs).collect();
            let (env, episode) = (row.env.0, row.episode);
            let call = format!("{env} in episode {episode} sees {seen:?}");
            self.calls.borrow_mut().push(call);
        }
        if rows.iter().any(|row| x(row) == RAISES) {
            return Err(InferenceError::NoPolicy.into());
        }
        let answer = |row: &PolicyRow| match x(row) {
            FAILS => RowAnswer::Failed(RowError("as a test wants it".to_owned())),
            ENDS => RowAnswer::End,
            x => RowAnswer::Chunk(Chunk::new(7, vec![x; 7])),
        };
        Ok(rows.iter().map(answer).collect())
    }
}

fn obedient(looks_back: usize) -> (ServedPolicy, Rc<RefCell<Vec<String>>>) {
    let calls = Rc::default();
    let policy = Obedient {
        looks_back,
        calls: Rc::clone(&calls),
    };
    let made = Made {
        facts: policy.facts(),
        policy: Box::new(policy),
    };
    let served = ServedPolicy::new(PolicyType::Python, made, &interface());
    (served.unwrap(), calls)
}

#[test]
fn a_row_that_fails_costs_its_request_alone() {
    let ended = "policy `python` has ended the episode; `reset` starts another";
    for (bad, reason) in [(FAILS, "as a test wants it"), (ENDS, ended)] {
        let (mut server, _) = obedient(0);
        let requests = [
            request(&[&[1.0]], vec![episode(1, 0, 0)]),
            request(&[&[2.0], &[bad]], vec![Noise::Seed(0), Noise::Seed(1)]),
            request(&[&[3.0]], vec![episode(2, 0, 0)]),
        ];
        let mut answers = server.answer(&requests, 8).unwrap().into_iter();
        assert_eq!(values(answers.next().unwrap()), [1.0; 7]);
        assert_eq!(answers.next().unwrap().unwrap_err().to_string(), reason);
        assert_eq!(values(answers.next().unwrap()), [3.0; 7]);
    }
}

#[test]
fn a_policy_that_fails_gives_back_the_slots_that_it_borrowed() {
    let (mut server, calls) = obedient(0);
    for _ in 0..2 {
        let request = request(&[&[RAISES]], vec![Noise::Seed(0)]);
        let err = server.answer(&[request], 8).unwrap_err();
        assert_eq!(err.to_string(), "no policy was made");
    }
    assert_eq!(*calls.borrow(), ["0 in episode 0 sees [300.0, 300.0]"; 2]);
}

#[test]
fn an_observation_of_another_size_is_refused_by_name() {
    let (mut server, _) = obedient(0);
    let mut wrong = request(&[&[1.0]], vec![episode(1, 0, 0)]);
    let PyObject::Map(parts) = &mut wrong.observation else {
        panic!("a map");
    };
    let short = floats(&[1, 1, 2], &[0.0; 2]);
    parts[1].1 = map(vec![("joint_position".to_owned(), short)]);
    let right = request(&[&[2.0]], vec![episode(2, 0, 0)]);
    let mut answers = server.answer(&[wrong, right], 8).unwrap().into_iter();
    let text = answers.next().unwrap().unwrap_err().to_string();
    let wanted = "state joint_position has the shape [1, 1, 2], expected [1, 1, 7]";
    assert!(text.starts_with(wanted), "{text}");
    assert_eq!(values(answers.next().unwrap()), [2.0; 7]);
}

#[test]
fn a_policy_that_looks_back_gets_the_steps_of_the_client() {
    let (mut server, calls) = obedient(1);
    assert_eq!(server.card().modalities.video.delta_indices, [-1, 0]);
    let request = request(&[&[1.0, 2.0]], vec![episode(1, 4, 0)]);
    assert_eq!(values(answer(&mut server, request)), [2.0; 7]);
    assert_eq!(*calls.borrow(), ["0 in episode 4 sees [1.0, 2.0]"]);
}

#[test]
fn a_client_that_leaves_frees_its_slots() {
    let (mut server, calls) = obedient(0);
    for client in 1..=3 {
        let request = request(&[&[1.0]], vec![episode(client, 0, 0)]);
        values(answer(&mut server, request));
        server.leave(ClientId(client));
    }
    assert_eq!(*calls.borrow(), ["0 in episode 0 sees [1.0, 1.0]"; 3]);
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

/// Returns a request for the demo's checkpoint with one row.
fn demo_request(env: &EnvSpec, text: &str, noise: Noise) -> PolicyRequest {
    request_of(env, &[&[0.1]], 90, text, vec![noise])
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
    let mut env = interface();
    env.cameras = env_with(&["front", "wrist"], [96, 96]).interface.cameras;
    let config = json!({"model_path": verbatim(folder.path())});
    let mut server = served("gr00t", config, &env);
    let nth = |client: u64, inference: u64| nth(client, 0, 7, inference);
    let mut alone = Vec::new();
    for inference in 0..3 {
        let request = demo_request(&env, "reach", nth(1, inference));
        alone.push(values(answer(server.as_mut(), request)));
    }
    assert_ne!(alone[0], alone[1]);
    for (inference, wanted) in alone.iter().enumerate() {
        let requests = [
            demo_request(&env, "reach", nth(2, inference as u64)),
            // Never answered, it is always this client's first inference.
            demo_request(&env, "look at <|image_pad|>", nth(3, 0)),
        ];
        let mut answers = answers(server.as_mut(), &requests);
        let refusal = answers.pop().unwrap().unwrap_err().to_string();
        assert!(refusal.contains("`look at <|image_pad|>`"), "{refusal}");
        assert_alike(&values(answers.pop().unwrap()), wanted);
    }
    // The client that was refused starts where it would have started.
    let first = answer(server.as_mut(), demo_request(&env, "reach", nth(3, 0)));
    assert_alike(&values(first), &alone[0]);
}
