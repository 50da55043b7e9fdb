//! Measures round trips of Python environments.
//!
//! `bench_bridge PYTHON ENVIRONMENT NUM_ENVS ENVS_PER_PROCESS ROUNDS` prints the microseconds of
//! each round trip as a JSON list. Each one steps all copies, with images, and checks the
//! observations.

use std::error::Error;
use std::time::Instant;

use runtime::env::python::{PythonConfig, make};
use runtime::env::{EnvIndex, Lockstep, Observation, Render};
use serde_json::json;

/// Warm-up round trips, which are not measured.
const WARM: usize = 30;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [python, environment, num_envs, envs_per_process, rounds] = words.as_slice() else {
        return Err("expected PYTHON ENVIRONMENT NUM_ENVS ENVS_PER_PROCESS ROUNDS".into());
    };
    let (num_envs, rounds): (usize, usize) = (num_envs.parse()?, rounds.parse()?);
    let args = json!({"environment": environment, "python": python, "max_episode_steps": 1_000_000,
                      "envs_per_process": envs_per_process.parse::<usize>()?});
    let entry = json!({"name": "bridge", "arena_env_args": args, "policy_type": "zero_action", "num_episodes": 1});
    let job = jobs::file::parse(&json!({"jobs": [entry]}))?.remove(0);
    let mut env = Lockstep::new(|answers| make(&job, PythonConfig::new(num_envs), answers))?;
    let resets: Vec<_> = (0..num_envs).map(|index| (EnvIndex(index), 0)).collect();
    let mut seen: Vec<Observation> = env
        .reset(&resets, Render::Yes)
        .into_iter()
        .collect::<Result<_, _>>()?;
    let mut micros = Vec::with_capacity(rounds);
    for round in 0..WARM + rounds {
        let action = vec![round as f32 / 1e6; env.spec().action.names.len()];
        let actions: Vec<_> = (0..num_envs)
            .map(|index| (EnvIndex(index), action.clone()))
            .collect();
        let begun = now();
        let steps = env.step(&actions, Render::Yes);
        let took = begun.elapsed();
        seen = steps
            .into_iter()
            .map(|step| step.map(|step| step.observation))
            .collect::<Result<_, _>>()?;
        if seen.iter().any(|one| {
            one.state["state"][..2] != [round as f32 + 1.0, action[0]] || one.video.len() != 2
        }) {
            return Err("an observation is not that of its step".into());
        }
        if round >= WARM {
            micros.push(took.as_secs_f64() * 1e6);
        }
    }
    drop(seen);
    println!("{}", json!(micros));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn now() -> Instant {
    Instant::now()
}
