//! Tests that read back whole recordings.

mod crash;
mod dataset;
mod lerobot;
mod video;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::env::{ActionSpec, CameraSpec, EnvIndex, EnvSpec, Frame, Observation, Step};
use crate::record::{
    CameraSize, DatasetPlan, EarlierDemos, EpisodeEnd, EpisodeMeta, Export, Format, RecordPlan,
    Recorded, Recorder, VideoPlan,
};

const SUCCESS: EpisodeEnd = EpisodeEnd {
    success: true,
    terminated: true,
    truncated: false,
};

/// Returns an environment with cameras of 32×32 and 32×30, two action dimensions and 10 steps per
/// second.
fn env() -> EnvSpec {
    let camera = |name: &str, width| CameraSpec {
        name: name.to_owned(),
        height: 32,
        width,
    };
    EnvSpec {
        name: "Lift".to_owned(),
        state: vec![("joint_position".to_owned(), 3)],
        cameras: vec![camera("front", 32), camera("wrist", 30)],
        action: ActionSpec {
            names: vec!["x".to_owned(), "grip".to_owned()],
            low: vec![-1.0; 2],
            high: vec![1.0; 2],
            grid: Vec::new(),
        },
        discrete: None,
        control_hz: 10,
        is_control_hz_assumed: false,
        max_episode_steps: 100,
        language: "lift the cube".to_owned(),
        ends_on_success: true,
        decimation: 5,
        sim_dt: 0.02,
    }
}

fn plan(dir: &Path, dataset: bool, video: bool) -> RecordPlan {
    let env_args = serde_json::json!({"env_name": "Lift", "type": 2});
    RecordPlan {
        dataset: dataset.then(|| DatasetPlan {
            path: dir.join("dataset.hdf5"),
            format: Format::Hdf5,
            export: Export::All,
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
            grids: Vec::new(),
            cameras: Vec::new(),
            size: CameraSize::AsRendered,
            fps: 0,
            bitrate: 500_000,
            threads: 0,
        }),
        num_envs: 2,
        env: env(),
    }
}

/// Returns the observation at time `t`, with or without images.
fn observation(t: u32, pictures: bool) -> Observation {
    let picture = |width: u32, colour: u8| Frame {
        height: 32,
        width,
        rgb: vec![colour.wrapping_add(t as u8); (32 * width * 3) as usize].into(),
    };
    let video = [
        ("front".to_owned(), picture(32, 40)),
        ("wrist".to_owned(), picture(30, 200)),
    ];
    Observation {
        state: BTreeMap::from([("joint_position".to_owned(), vec![t as f32; 3])]),
        video: if pictures {
            BTreeMap::from(video)
        } else {
            BTreeMap::new()
        },
        language: Arc::from("lift the cube"),
        sim_state: BTreeMap::from([(
            "articulation/robot/joint_position".to_owned(),
            vec![t as f32 + 0.5; 4],
        )]),
        feedback: None,
    }
}

fn begin(recorder: &mut Recorder, env: usize, episode: u64, pictures: bool) {
    let meta = EpisodeMeta {
        episode,
        seed: 100 + episode,
        language: Arc::from("lift the cube"),
    };
    recorder
        .begin(EnvIndex(env), meta, &observation(0, pictures))
        .unwrap();
}

/// Returns a step to this observation, without reward or end.
fn step_to(observation: Observation) -> Step {
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
            reward: t as f32,
            success: done,
            terminated: done,
            ..step_to(observation(t, pictures))
        };
        recorder
            .step(EnvIndex(env), &[t as f32, -1.0], Some(&[0.25]), &step)
            .unwrap();
    }
}

/// Records a whole successful episode.
fn episode(recorder: &mut Recorder, env: usize, episode: u64, count: u32) {
    let pictures = recorder.wanted.pictures;
    begin(recorder, env, episode, pictures);
    steps(recorder, env, count, pictures);
    recorder.end(EnvIndex(env), SUCCESS).unwrap();
}

fn demos(recorded: &[Recorded]) -> Vec<&str> {
    recorded
        .iter()
        .filter_map(|recorded| recorded.demo.as_deref())
        .collect()
}
