//! Measures round trips of Python environments and calls of a Python policy in its worker. Prints
//! the microseconds of each as a JSON list, and checks what comes back.
//!
//! ```text
//! measure bridge environment PYTHON ENVIRONMENT NUM_ENVS ENVS_PER_PROCESS ROUNDS
//!     steps all copies, with images
//! measure bridge policy PYTHON POLICY ROWS CALLS PAUSE
//!     gives the policy two pictures of 224 × 224 and 64 numbers for each row, with a pause of so
//!     many milliseconds before each call (benches/policy_bridge_policy.py)
//! ```

use std::sync::Arc;
use std::time::Duration;

use runtime::env::{
    ActionSpec, Answer, CameraSpec, Command, EnvIndex, EnvPlacement, EnvSpec, Frame, Observation,
    Render, VectorEnv, make,
};
use runtime::policy::python::{PythonPolicy, PythonPolicySettings};
use runtime::policy::{Lifeline, Policy as _, PolicyRow, Window};
use serde_json::{Map, json};
use tch::Device;

use crate::{Outcome, now, pause};
use jobs::interface::Interface;
use rustix::event::{PollFd, PollFlags, poll};

/// Rounds or calls before those that are measured.
const WARM: usize = 30;
/// Edge of a picture in pixels.
const SIDE: u32 = 224;
/// Observations that follow each other, as environments show new ones.
const SETS: usize = 3;
const CAMERAS: [&str; 2] = ["front", "wrist"];

pub fn main(words: &[&str]) -> Outcome<()> {
    let micros = match *words {
        ["environment", python, environment, copies, each, rounds] => {
            let args = json!({"environment": environment, "python": python,
                              "max_episode_steps": 1_000_000,
                              "envs_per_process": each.parse::<usize>()?});
            environments(args, copies.parse()?, rounds.parse()?)?
        }
        ["policy", python, policy, rows, calls, rest] => {
            let config = Map::from_iter([
                ("policy".to_owned(), json!(policy)),
                ("python".to_owned(), json!(python)),
            ]);
            let rest = Duration::from_millis(rest.parse()?);
            policies(&config, rows.parse()?, calls.parse()?, rest)?
        }
        _ => return Err("expected environment or policy, see benches/measure/bridge.rs".into()),
    };
    println!("{}", json!(micros));
    Ok(())
}

fn environments(args: serde_json::Value, num_envs: usize, rounds: usize) -> Outcome<Vec<f64>> {
    let entry = json!({"name": "bridge", "arena_env_args": args, "policy_type": "zero_action",
                       "num_episodes": 1});
    let job = jobs::file::parse(&json!({"jobs": [entry]}))?.remove(0);
    let mut env = make(&job, 0, &EnvPlacement::new(num_envs))?.env;
    let reset = Command::Reset {
        seed: 0,
        episode: 0,
        render: Render::Yes,
    };
    // The observations of a step are held until the next ones are there, as by a policy.
    let mut seen = answered(&mut *env, &reset)?;
    let mut micros = Vec::with_capacity(rounds);
    for round in 0..WARM + rounds {
        let action = vec![round as f32 / 1e6; env.spec().action.names.len()];
        let step = Command::Step {
            action: action.clone(),
            render: Render::Yes,
        };
        let begun = now();
        let steps = answered(&mut *env, &step)?;
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
        seen.clear();
        seen.extend(steps);
        let is_of_step = |one: &Observation| {
            one.state["state"][..2] == [round as f32 + 1.0, action[0]] && one.video.len() == 2
        };
        if !seen.iter().all(is_of_step) {
            return Err("an observation is not that of its step".into());
        }
    }
    Ok(micros.split_off(WARM))
}

/// Sends a command to all copies, and waits for what they observe.
fn answered(env: &mut dyn VectorEnv, command: &Command) -> Outcome<Vec<Observation>> {
    let all = (0..env.num_envs()).map(|index| (EnvIndex(index), command.clone()));
    env.send(all.collect());
    let mut seen = Vec::new();
    while seen.len() < env.num_envs() {
        poll(&mut [PollFd::new(&env.ready(), PollFlags::IN)], None)?;
        for (_, answer) in env.take() {
            seen.push(match answer {
                Answer::Reset(first) => first?,
                Answer::Step(step) => step?.observation,
            });
        }
    }
    Ok(seen)
}

fn policies(
    config: &Map<String, serde_json::Value>,
    num_rows: usize,
    calls: usize,
    rest: Duration,
) -> Outcome<Vec<f64>> {
    let settings = PythonPolicySettings::read(config)?;
    let spec = env(&CAMERAS, [SIDE; 2], &[("state", 64)]);
    let mut policy = PythonPolicy::start(settings, &spec, Device::Cpu, &Lifeline::alone())?;
    let sets: Vec<Vec<PolicyRow>> = (0..SETS)
        .map(|set| (0..num_rows).map(|row| seen(set, row)).collect())
        .collect();
    let mut micros = Vec::with_capacity(calls);
    for call in 0..WARM + calls {
        let set = call % SETS;
        pause(rest);
        let begun = now();
        let answers = policy.act(&sets[set])?;
        micros.push(begun.elapsed().as_secs_f64() * 1e6);
        for (row, answer) in answers.iter().enumerate() {
            let pixel = f32::from(level(set, row));
            let action = answer.chunk().and_then(|chunk| chunk.action(0));
            if action.map(|action| &action[..3]) != Some(&[set as f32, pixel, pixel]) {
                return Err(format!("call {call} has the actions of another: {answer:?}").into());
            }
        }
    }
    Ok(micros.split_off(WARM))
}

/// Returns an arm of seven joints with these cameras, all of one height and width, and states.
pub fn env(cameras: &[&str], [height, width]: [u32; 2], states: &[(&str, usize)]) -> EnvSpec {
    let camera = |name: &&str| CameraSpec {
        name: (*name).to_owned(),
        height,
        width,
    };
    let state = |(name, width): &(&str, usize)| ((*name).to_owned(), *width);
    let interface = Interface {
        name: "push".to_owned(),
        state: states.iter().map(state).collect(),
        cameras: cameras.iter().map(camera).collect(),
        action: ActionSpec {
            names: (0..7).map(|joint| format!("joint{joint}")).collect(),
            low: vec![-1.0; 7],
            high: vec![1.0; 7],
            grid: Vec::new(),
        },
        control_hz: 20,
        max_episode_steps: 300,
        language: "put the cube onto the plate".to_owned(),
    };
    EnvSpec {
        ends_on_success: true,
        ..EnvSpec::seen(interface)
    }
}

/// Returns the value of all pixels of a row.
fn level(set: usize, row: usize) -> u8 {
    (20 * set + row) as u8
}

fn seen(set: usize, row: usize) -> PolicyRow {
    let mut observation = Observation::default();
    let mut state = vec![0.0; 64];
    state[0] = set as f32;
    observation.state.insert("state".to_owned(), state);
    observation.language = "put the cube onto the plate".into();
    for camera in CAMERAS {
        let frame = Frame {
            height: SIDE,
            width: SIDE,
            rgb: vec![level(set, row); (SIDE * SIDE * 3) as usize].into(),
        };
        observation.video.insert(camera.to_owned(), frame);
    }
    PolicyRow {
        env: EnvIndex(row),
        episode: row as u64,
        seed: row as u64,
        inference: 0,
        window: Window::new(Arc::new(observation)),
        continues: None,
        noise: None,
    }
}
