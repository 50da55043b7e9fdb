//! Tests with real Python processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jobs::journal::Blame;
use rig::root;
use serde_json::{Value, json};

use super::*;
use crate::env::tests::Lockstep;
use crate::env::{Gpu, Observation, Render, Step};

mod company;
mod failures;
mod fork_server;
mod hostile;
mod many;
mod place;
mod seen;
mod starts;
mod together;
mod values;

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

/// Returns a description of an environment, as a process sends it.
pub fn hello() -> Value {
    json!({
        "interface": {
            "name": "x", "states": {"position": 3, "width": 1}, "cameras": {"front": [4, 5]},
            "actions": {"names": ["x", "y"], "low": [-1.0, null], "high": [1.0, null], "grid": [0.0, 1.0]},
            "control_hz": 20, "max_episode_steps": 50, "language": "go",
        },
        "is_control_hz_assumed": false, "together": false, "notes": [], "versions": {},
    })
}

type Toy = Lockstep<PythonEnv>;

/// Returns GPUs by the numbers that `nvidia-smi` gives them.
fn gpus(numbers: &[Option<u32>]) -> Vec<Option<Gpu>> {
    let gpu = |number| Gpu {
        number: Some(number),
        ..Gpu::default()
    };
    numbers.iter().map(|number| number.map(gpu)).collect()
}

fn config(place: EnvPlacement) -> PythonConfig {
    PythonConfig {
        place,
        egl: EglAdvice::default(),
        first_seed: 0,
    }
}

fn start_with(args: Value, config: PythonConfig) -> Result<Toy, EnvError> {
    make(&job(args), config).map(Lockstep::new)
}

fn start(args: Value, num_envs: usize) -> Toy {
    start_with(args, config(EnvPlacement::new(num_envs))).unwrap()
}

/// Returns why an environment with as many copies as a process has cannot be made.
fn refusal(args: Value) -> String {
    let num_envs = args["envs_per_process"].as_u64().unwrap_or(1) as usize;
    let started = start_with(args, config(EnvPlacement::new(num_envs)));
    started.err().unwrap().to_string()
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

/// Returns a message without what differs from run to run: folders, lines of code, process ids, and
/// the frames of a traceback.
fn shown(message: &str) -> String {
    let message = message.replace(&root().display().to_string(), "");
    let lines = message.lines().enumerate();
    let lines = lines.filter(|(number, line)| *number == 0 || !line.starts_with("     "));
    let lines: Vec<_> = lines.map(|(_, line)| line).collect();
    without_number(
        &without_number(&lines.join("\n"), ", process "),
        ".py line ",
    )
}

fn without_number(text: &str, before: &str) -> String {
    let mut parts = text.split(before);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| {
        let rest = part.trim_start_matches(|letter: char| letter.is_ascii_digit());
        shown + before + "N" + rest
    })
}
