//! Tests of the bridge with real Python processes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jobs::journal::Blame;
use serde_json::{Value, json};

use super::*;
use crate::env::{Answer, Lockstep, Observation, Render, Step};

mod company;
mod failures;
mod fork_server;
mod hostile;
mod many;
mod offers;
mod place;
mod seen;
mod together;
mod values;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Returns the project's interpreter, which has gymnasium.
fn python() -> String {
    root().join(".venv/bin/python").display().to_string()
}

fn fixture(factory: &str) -> String {
    format!(
        "{}:{factory}",
        root().join("tests/fixtures/envs/toy.py").display()
    )
}

fn job(mut args: Value) -> Job {
    args["python"] = json!(python());
    if args.get("environment").is_none() {
        args["environment"] = json!(fixture("Toy"));
    }
    if args.get("max_episode_steps").is_none() {
        args["max_episode_steps"] = json!(50);
    }
    let file = json!({"jobs": [{"name": "toy", "arena_env_args": args, "policy_type": "zero_action", "num_episodes": 1}]});
    jobs::file::parse(&file).unwrap().remove(0)
}

type Toy = Lockstep<PythonEnv>;

fn start_with(args: Value, config: PythonConfig) -> Result<Toy, EnvError> {
    Lockstep::new(|answers| make(&job(args), config, answers))
}

fn start(args: Value, num_envs: usize) -> Toy {
    start_with(args, PythonConfig::new(num_envs)).unwrap()
}

fn refusal(args: Value) -> String {
    start_with(args, PythonConfig::new(1))
        .err()
        .unwrap()
        .to_string()
}

fn reset(env: &mut Toy, index: usize, seed: u64) -> Result<Observation, EnvError> {
    env.reset(&[(EnvIndex(index), seed)], Render::Yes).remove(0)
}

fn step(env: &mut Toy, index: usize, action: [f32; 2]) -> Result<Step, EnvError> {
    env.step(&[(EnvIndex(index), action.to_vec())], Render::Yes)
        .remove(0)
}

fn lost(result: Result<impl std::fmt::Debug, EnvError>) -> (usize, String, Vec<String>) {
    match result.unwrap_err() {
        EnvError::Lost {
            env,
            reason,
            stderr,
            ..
        } => (env.0, reason, stderr),
        other => panic!("{other}"),
    }
}

fn blame(result: Result<impl std::fmt::Debug, EnvError>) -> Blame {
    match result.unwrap_err() {
        EnvError::Lost { blame, .. } => blame,
        other => panic!("{other}"),
    }
}
