//! Tests that read back whole recordings.

mod crash;
mod dataset;
mod lerobot;
mod video;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use jobs::eval_args::ExportMode;
use jobs::layout::{RecordFormat, RunFolder};
use jobs::samples;

use crate::env::{EnvIndex, EnvSpec, Observation, Step};
use crate::policy::tests::{env_with, frame};
use crate::record::{
    AS_RENDERED, DatasetPlan, EarlierDemos, EpisodeEnd, Finished, RecordPlan, Recorder, VideoPlan,
};

const SUCCESS: EpisodeEnd = EpisodeEnd {
    success: true,
    terminated: true,
    truncated: false,
};

const FAILURE: EpisodeEnd = EpisodeEnd {
    success: false,
    terminated: false,
    truncated: true,
};

/// Returns an environment with cameras of 32×32 and 32×30, two action dimensions and 10 steps per
/// second.
fn env() -> EnvSpec {
    let mut env = env_with(&["front", "wrist"], [32, 32]);
    env.name = "Lift".to_owned();
    env.state = vec![("joint_position".to_owned(), 3)];
    env.control_hz = 10;
    env.cameras[1].width = 30;
    env.action.names = vec!["x".to_owned(), "grip".to_owned()];
    env
}

pub(in crate::record) fn plan(dir: &Path, dataset: bool, video: bool) -> RecordPlan {
    let env_args = serde_json::json!({"env_name": "Lift", "type": 2});
    RecordPlan {
        folder: RunFolder::new(dir),
        dataset: dataset.then(|| DatasetPlan {
            path: dir.join("dataset.hdf5"),
            format: RecordFormat::Hdf5,
            export: ExportMode::All,
            earlier: EarlierDemos::default(),
            earlier_failed: EarlierDemos::default(),
            env_args,
            cameras: false,
        }),
        video: video.then(|| VideoPlan {
            dir: dir.join("videos"),
            stems: (0..2)
                .map(|env| format!("lift_video_rank0_gpu0_env{env}"))
                .collect(),
            per_episode: false,
            grids: BTreeMap::new(),
            cameras: ["front", "wrist"].map(str::to_owned).to_vec(),
            camera_limit: AS_RENDERED,
            fps: 10,
            bitrate: 500_000,
        }),
        num_envs: 2,
        env: env(),
    }
}

/// Returns the observation at time `t`, with or without images.
fn observation(t: u32, pictures: bool) -> Observation {
    let picture = |width: u32, colour: u8| frame([32, width], colour.wrapping_add(t as u8));
    let video = [
        ("front".to_owned(), picture(32, 40)),
        ("wrist".to_owned(), picture(30, 200)),
    ];
    let joints = "articulation/robot/joint_position";
    Observation {
        state: BTreeMap::from([("joint_position".to_owned(), vec![t as f32; 3])]),
        video: video.into_iter().filter(|_| pictures).collect(),
        language: Arc::from("lift the cube"),
        sim_state: BTreeMap::from([(joints.to_owned(), vec![t as f32 + 0.5; 4])]),
        feedback: None,
    }
}

fn begin(recorder: &mut Recorder, env: usize, episode: u64, pictures: bool) {
    let first = observation(0, pictures);
    recorder
        .begin(EnvIndex(env), episode, 100 + episode, &first)
        .unwrap();
}

/// Returns a source of bytes that are unrelated to each other.
pub(super) fn noise(seed: u32) -> impl FnMut() -> u8 {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 7) as u8
    }
}

/// Returns a step to this observation, without reward or end.
pub(super) fn step_to(observation: Observation) -> Step {
    Step {
        observation,
        processed_action: vec![],
        out_of_bounds: false,
        reward: 0.0,
        success: false,
        terminated: false,
        truncated: false,
    }
}

fn steps(recorder: &mut Recorder, env: usize, count: u32, pictures: bool) {
    for t in 1..=count {
        let done = t == count;
        let step = Step {
            processed_action: vec![0.25],
            reward: t as f32,
            success: done,
            terminated: done,
            ..step_to(observation(t, pictures))
        };
        recorder
            .step(EnvIndex(env), &[t as f32, -1.0], &step)
            .unwrap();
    }
}

/// Ends an episode.
fn end(recorder: &mut Recorder, env: usize, number: u64, end: EpisodeEnd) {
    let episode = samples::episode(0, "lift", number);
    recorder.end(EnvIndex(env), episode, end).unwrap();
}

/// Records a whole successful episode.
fn episode(recorder: &mut Recorder, env: usize, episode: u64, count: u32) {
    begin(recorder, env, episode, true);
    steps(recorder, env, count, true);
    end(recorder, env, episode, SUCCESS);
}

/// Starts a recording without warnings.
fn start(plan: RecordPlan) -> Recorder {
    let (recorder, notes) = Recorder::start(plan).unwrap();
    assert_eq!(notes, [""; 0]);
    recorder
}

/// Closes the files, and returns what came of the episodes.
fn finish(recorder: Recorder) -> Vec<Finished> {
    let (finished, closed) = recorder.finish();
    closed.result.unwrap();
    finished
}

/// Starts a recording without warnings, and returns what came of the episodes.
fn recorded(plan: RecordPlan, record: impl FnOnce(&mut Recorder)) -> Vec<Finished> {
    let mut recorder = start(plan);
    record(&mut recorder);
    finish(recorder)
}

/// Has a Python program of the fixtures check a dataset with these numbers.
fn check_with(python: impl AsRef<OsStr>, program: &str, dataset: &Path, numbers: &[usize]) {
    let mut command = Command::new(python);
    command.arg(rig::fixture(program)).arg(dataset);
    let output = command.args(numbers.iter().map(usize::to_string)).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn demo(finished: &Finished) -> Option<&str> {
    Some(&*finished.episode.dataset.as_ref()?.demo)
}

fn demos(recorded: &[Finished]) -> Vec<&str> {
    recorded.iter().filter_map(demo).collect()
}
