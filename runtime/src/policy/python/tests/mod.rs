//! Tests of the policy with real Python processes: `tests/fixtures/policies/toy.py`.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;

use rig::root;
use serde_json::{Map, Value, json};

use super::*;
use crate::policy::Window;
use crate::policy::tests::{env_spec, env_with, frame, row};

mod document;
mod failures;
mod seen;
mod start;

/// The seed of the episodes in which the toy misbehaves.
const FAULT_SEED: u64 = 13;

/// Returns an environment with a camera of 4 × 6 pixels.
fn env() -> EnvSpec {
    env_with(&["front"], [4, 6])
}

/// Returns settings for the project's interpreter, which has numpy.
fn settings(factory: &str, more: Value) -> Map<String, Value> {
    let toy = root().join("tests/fixtures/policies/toy.py");
    let mut all = Map::new();
    all.insert(
        "policy".to_owned(),
        json!(format!("{}:{factory}", toy.display())),
    );
    all.insert("python".to_owned(), json!(root().join(".venv")));
    let Value::Object(more) = more else {
        panic!("an object is meant")
    };
    all.extend(more);
    all
}

fn try_start(config: &Map<String, Value>, lifeline: &Lifeline) -> Result<Toy, PolicyError> {
    let settings = PythonPolicySettings::read(config)?;
    let policy = PythonPolicy::start(settings, &env(), Device::Cpu, lifeline)?;
    Ok(Toy {
        policy,
        episodes: BTreeMap::new(),
    })
}

fn start(factory: &str, more: Value) -> Toy {
    try_start(&settings(factory, more), &Lifeline::alone()).unwrap()
}

/// Starts a toy with a fault.
fn faulty(factory: &str, fault: &str) -> Toy {
    start(
        factory,
        json!({"policy_kwargs": {"fault": fault}, "act_timeout_s": 20, "max_restarts": 1}),
    )
}

/// Returns the reason why a policy cannot be made.
fn refusal(factory: &str, more: Value) -> String {
    let started = try_start(&settings(factory, more), &Lifeline::alone());
    started.err().unwrap().to_string()
}

/// Returns a row with a picture of one level, a position, and an instruction.
fn seen(env: usize, level: u8, x: f32, text: &str) -> PolicyRow {
    let states = env_spec().interface.state.into_iter();
    let states = states.map(|(name, length)| (name, vec![x; length]));
    let observation = Observation {
        video: [("front".to_owned(), frame([4, 6], level))].into(),
        state: states.collect(),
        language: text.into(),
        ..Observation::default()
    };
    row(env, observation)
}

/// Returns a row as a later inference of its episode.
fn later(row: PolicyRow, inference: u64) -> PolicyRow {
    PolicyRow { inference, ..row }
}

/// Begins an episode in each of these environments, with these seeds.
fn begin(policy: &mut Toy, seeds: &[u64]) {
    let start = |(env, seed): (usize, &u64)| (env, (*seed, 0));
    policy.episodes.extend(seeds.iter().enumerate().map(start));
}

/// A policy, with the seed and the number of answers of each environment's episode.
struct Toy {
    policy: PythonPolicy,
    episodes: BTreeMap<usize, (u64, u64)>,
}

impl Deref for Toy {
    type Target = PythonPolicy;

    fn deref(&self) -> &PythonPolicy {
        &self.policy
    }
}

impl Toy {
    /// Asks for the next chunks of the episodes, or those whose number a row has.
    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let row = |row: &PolicyRow| {
            let (seed, answered) = *self.episodes.entry(row.env.0).or_default();
            PolicyRow {
                episode: row.env.0 as u64 + 100,
                seed,
                inference: row.inference.max(answered),
                ..row.clone()
            }
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        let answers = self.policy.act(&rows)?;
        for (row, answer) in rows.iter().zip(&answers) {
            let (_, answered) = self.episodes.entry(row.env.0).or_default();
            *answered = row.inference + u64::from(answer.chunk().is_some());
        }
        Ok(answers)
    }
}

/// Returns the answers for these environments, which all see the same.
fn act(policy: &mut Toy, envs: &[usize]) -> Vec<RowAnswer> {
    let rows: Vec<_> = envs.iter().map(|env| seen(*env, 9, 0.5, "go")).collect();
    policy.act(&rows).unwrap()
}

/// Returns the first action of a chunk that has not failed.
fn first(answer: &RowAnswer) -> &[f32] {
    let chunk = answer.chunk().unwrap_or_else(|| panic!("{answer:?}"));
    chunk.action(0).unwrap()
}

/// Returns the process id of the worker, as its actions have it.
fn pid(answer: &RowAnswer) -> f32 {
    first(answer)[6]
}

fn failure(answer: &RowAnswer) -> &str {
    answer.failure().expect("must have failed")
}
