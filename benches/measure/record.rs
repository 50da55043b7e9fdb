//! Measures recording for `benches/video.py` and `benches/record.py`, which run it next to what it
//! replaces.
//!
//! ```text
//! measure record video   PICTURES HEIGHT WIDTH STEPS ENVS DIR
//! measure record dataset PICTURES HEIGHT WIDTH STEPS EPISODES DIR   no images if HEIGHT is 0
//! ```
//!
//! `PICTURES` is a file of raw RGB, `[n, height, width, 3]`, whose frames are repeated. Prints one
//! line of JSON, in seconds: time until everything is written (`all`), CPU time of all threads
//! (`cpu`), time until the caller was done (`caller`), and how long the caller waited for full
//! queues (`waited`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jobs::eval_args::ExportMode;
use jobs::layout::{RecordFormat, RunFolder};
use jobs::samples;
use runtime::env::{EnvIndex, EnvSpec, Frame, Observation, Step};
use runtime::record::{
    AS_RENDERED, DatasetPlan, EarlierDemos, EpisodeEnd, RecordPlan, Recorder, VideoPlan,
};

use crate::{Outcome, bridge, now};

/// Dimension of the action and of each of the three state vectors: an arm with seven joints.
const JOINTS: usize = 7;
const STATES: [&str; 3] = ["joint_position", "joint_velocity", "eef"];

pub fn main(words: &[&str]) -> Outcome<()> {
    match *words {
        ["video", pictures, height, width, steps, envs, dir] => {
            let scene = Scene::read(pictures, height, width)?;
            let envs = envs.parse()?;
            let video = Some(video(Path::new(dir), envs));
            let plan = scene.plan(envs, None, video);
            record(&scene, steps.parse()?, envs, plan)
        }
        ["dataset", pictures, height, width, steps, episodes, dir] => {
            let scene = Scene::read(pictures, height, width)?;
            let dataset = Some(dataset(Path::new(dir), scene.height > 0));
            let episodes = episodes.parse()?;
            let plan = scene.plan(episodes, dataset, None);
            record(&scene, steps.parse()?, episodes, plan)
        }
        _ => Err("expected video or dataset, see benches/measure/record.rs".into()),
    }
}

/// Records one episode in each environment, with interleaved steps.
fn record(scene: &Scene, steps: usize, envs: usize, plan: RecordPlan) -> Outcome<()> {
    let (start, used) = (now(), cpu()?);
    let (mut recorder, _) = Recorder::start(plan)?;
    for env in (0..envs).map(EnvIndex) {
        recorder.begin(env, env.0 as u64, 0, &scene.observation(0))?;
    }
    for step in 1..=steps {
        let action = [step as f32 * 1e-3; JOINTS];
        let observation = scene.observation(step);
        let step = Step {
            observation,
            processed_action: action.to_vec(),
            out_of_bounds: false,
            reward: 0.5,
            success: false,
            terminated: false,
            truncated: step == steps,
        };
        for env in (0..envs).map(EnvIndex) {
            recorder.step(env, &action, &step)?;
        }
    }
    for env in (0..envs).map(EnvIndex) {
        recorder.end(
            env,
            samples::episode(0, "push", env.0 as u64),
            EpisodeEnd {
                success: true,
                terminated: false,
                truncated: true,
            },
        )?;
    }
    let caller = start.elapsed();
    let waits = recorder.waits();
    recorder.finish().1.result?;
    let [all, caller, waited] =
        [start.elapsed(), caller, waits.time].map(|time| time.as_secs_f64());
    let said =
        serde_json::json!({ "all": all, "cpu": cpu()? - used, "caller": caller, "waited": waited });
    println!("{said}");
    Ok(())
}

/// Returns the CPU time of the process in seconds: fields 14 and 15 of `/proc/self/stat`, in
/// hundredths of a second (proc(5)).
fn cpu() -> Outcome<f64> {
    let line = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = line.rsplit_once(')').ok_or("/proc/self/stat has no name")?;
    let ticks: Result<Vec<f64>, _> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse)
        .collect();
    Ok(ticks?.iter().sum::<f64>() / 100.0)
}

fn video(dir: &Path, envs: usize) -> VideoPlan {
    VideoPlan {
        dir: dir.to_owned(),
        stems: (0..envs)
            .map(|env| format!("push_video_rank0_gpu0_env{env}"))
            .collect(),
        per_episode: false,
        grids: BTreeMap::new(),
        cameras: vec!["front".to_owned()],
        camera_limit: AS_RENDERED,
        fps: 30,
        bitrate: 8_000_000,
    }
}

fn dataset(dir: &Path, cameras: bool) -> DatasetPlan {
    DatasetPlan {
        path: dir.join("dataset.hdf5"),
        format: RecordFormat::Hdf5,
        export: ExportMode::All,
        earlier: EarlierDemos::default(),
        earlier_failed: EarlierDemos::default(),
        env_args: serde_json::json!({"env_name": "push", "type": 2}),
        cameras,
    }
}

/// The images and states of the environments.
struct Scene {
    height: u32,
    width: u32,
    frames: Vec<Frame>,
}

impl Scene {
    fn read(pictures: &str, height: &str, width: &str) -> Outcome<Self> {
        let (height, width) = (height.parse::<u32>()?, width.parse::<u32>()?);
        if height == 0 {
            return Ok(Self {
                height,
                width,
                frames: Vec::new(),
            });
        }
        let bytes = std::fs::read(pictures)?;
        let frames = bytes.chunks_exact((height * width * 3) as usize);
        let frames = frames.map(|rgb| Frame {
            height,
            width,
            rgb: rgb.to_vec().into(),
        });
        Ok(Self {
            height,
            width,
            frames: frames.collect(),
        })
    }

    fn env(&self) -> EnvSpec {
        let cameras: &[&str] = if self.height > 0 { &["front"] } else { &[] };
        let mut env = bridge::env(
            cameras,
            [self.height, self.width],
            &STATES.map(|name| (name, JOINTS)),
        );
        (env.control_hz, env.sim_dt) = (30, 1.0 / 30.0);
        env
    }

    fn plan(
        &self,
        num_envs: usize,
        dataset: Option<DatasetPlan>,
        video: Option<VideoPlan>,
    ) -> RecordPlan {
        RecordPlan {
            folder: RunFolder::new(Path::new("")),
            dataset,
            video,
            num_envs,
            env: self.env(),
        }
    }

    fn observation(&self, step: usize) -> Observation {
        let wave = |joint: usize| ((step * (joint + 1)) as f32 * 0.01).sin();
        let values: Vec<f32> = (0..JOINTS).map(wave).collect();
        let state = STATES.map(|name| (name.to_owned(), values.clone()));
        let sim_state = ["joint_position", "joint_velocity"]
            .map(|name| (format!("articulation/robot/{name}"), values.clone()));
        let frame = self.frames.get(step % self.frames.len().max(1));
        Observation {
            state: BTreeMap::from(state),
            video: frame
                .map(|frame| ("front".to_owned(), frame.clone()))
                .into_iter()
                .collect(),
            language: Arc::from("push"),
            sim_state: BTreeMap::from(sim_state),
            feedback: None,
        }
    }
}
