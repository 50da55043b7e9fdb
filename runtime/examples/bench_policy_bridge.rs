//! Measures calls of a Python policy in its worker.
//!
//! `bench_policy_bridge PYTHON POLICY ROWS CALLS PAUSE` prints the microseconds of each call as a
//! JSON list, with a pause of so many milliseconds before each. Each call gives the policy two
//! pictures of 224 × 224 and 64 numbers for each row, and checks that the actions are those of this
//! call (`benches/policy_bridge_policy.py`).

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use runtime::env::{ActionSpec, CameraSpec, EnvIndex, EnvSpec, Frame, Observation};
use runtime::policy::python::{PythonPolicy, PythonPolicySettings};
use runtime::policy::{EpisodeReset, Lifeline, Policy as _, PolicyRow, RowNoise};
use serde_json::{Map, json};
use tch::Device;

/// Calls before those that are measured.
const WARM: usize = 30;
/// Edge of a picture in pixels.
const SIDE: u32 = 224;
/// Observations that follow each other, as environments show new ones.
const SETS: usize = 3;
const CAMERAS: [&str; 2] = ["front", "wrist"];

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [python, policy, rows, calls, pause] = words.as_slice() else {
        return Err("expected PYTHON POLICY ROWS CALLS PAUSE".into());
    };
    let pause = Duration::from_millis(pause.parse()?);
    let (num_rows, calls): (usize, usize) = (rows.parse()?, calls.parse()?);
    let mut config = Map::new();
    config.insert("policy".to_owned(), json!(policy));
    config.insert("python".to_owned(), json!(python));
    let settings = PythonPolicySettings::read(&config)?;
    let mut policy = PythonPolicy::start(settings, &env(), Device::Cpu, &Lifeline::alone())?;
    let starts: Vec<_> = (0..num_rows).map(start).collect();
    policy.reset(&starts);
    let sets: Vec<Vec<PolicyRow>> = (0..SETS)
        .map(|set| (0..num_rows).map(|row| seen(set, row)).collect())
        .collect();
    let mut micros = Vec::with_capacity(calls);
    for call in 0..WARM + calls {
        let set = call % SETS;
        sleep(pause);
        let begun = now();
        let answers = policy.act(&sets[set])?;
        let took = begun.elapsed();
        for (row, answer) in answers.iter().enumerate() {
            let pixel = f32::from(level(set, row));
            let action = answer.chunk().and_then(|chunk| chunk.action(0));
            if action.map(|action| &action[..3]) != Some(&[set as f32, pixel, pixel]) {
                return Err(format!("call {call} has the actions of another: {answer:?}").into());
            }
        }
        if call >= WARM {
            micros.push(took.as_secs_f64() * 1e6);
        }
    }
    println!("{}", json!(micros));
    Ok(())
}

fn env() -> EnvSpec {
    let camera = |name: &str| CameraSpec {
        name: name.to_owned(),
        height: SIDE,
        width: SIDE,
    };
    EnvSpec {
        name: "still".to_owned(),
        state: vec![("state".to_owned(), 64)],
        cameras: CAMERAS.map(camera).to_vec(),
        action: ActionSpec {
            names: (0..7).map(|index| format!("a{index}")).collect(),
            low: vec![-1.0; 7],
            high: vec![1.0; 7],
            grid: Vec::new(),
        },
        discrete: None,
        control_hz: 20,
        is_control_hz_assumed: false,
        max_episode_steps: 200,
        language: "put the cube onto the plate".to_owned(),
        ends_on_success: true,
        decimation: 1,
        sim_dt: 0.05,
    }
}

fn start(row: usize) -> EpisodeReset {
    EpisodeReset {
        env: EnvIndex(row),
        episode: row as u64,
        seed: row as u64,
    }
}

/// Returns the value of all pixels of a row.
fn level(set: usize, row: usize) -> u8 {
    (20 * set + row) as u8
}

fn seen(set: usize, row: usize) -> PolicyRow {
    let mut observation = Observation::empty();
    let mut state = vec![0.0; 64];
    state[0] = set as f32;
    observation.state.insert("state".to_owned(), state);
    observation.language = "put the cube onto the plate".into();
    for camera in CAMERAS {
        let frame = Frame {
            height: SIDE,
            width: SIDE,
            rgb: Bytes::from(vec![level(set, row); (SIDE * SIDE * 3) as usize]),
        };
        observation.video.insert(camera.to_owned(), frame);
    }
    PolicyRow {
        env: EnvIndex(row),
        observation: Arc::new(observation),
        continues: None,
        noise: RowNoise::default(),
    }
}

#[expect(clippy::disallowed_methods, reason = "as environments pause a policy")]
fn sleep(pause: Duration) {
    std::thread::sleep(pause);
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn now() -> Instant {
    Instant::now()
}
