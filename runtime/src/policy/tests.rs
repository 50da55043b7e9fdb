use std::sync::Arc;

use super::*;
use crate::env::EnvSpec;
use crate::env::{ActionSpec, CameraSpec, EnvIndex, Frame, Observation};
use jobs::interface::Interface;

/// Returns the table-top of [`env_spec`] with cameras of this height and width.
pub(crate) fn env_with(cameras: &[&str], [height, width]: [u32; 2]) -> EnvSpec {
    let camera = |name: &&str| CameraSpec {
        name: (*name).to_owned(),
        height,
        width,
    };
    let mut env = env_spec();
    env.cameras = cameras.iter().map(camera).collect();
    env
}

/// Returns a picture of one grey.
pub(crate) fn frame([height, width]: [u32; 2], level: u8) -> Frame {
    let rgb = vec![level; (height * width * 3) as usize].into();
    Frame { height, width, rgb }
}

/// Returns an empty observation.
pub(crate) fn observation() -> Observation {
    Observation::default()
}

/// Returns a row of an inference, the first of an episode with seed 0.
pub(crate) fn row(env: usize, observation: Observation) -> PolicyRow {
    PolicyRow {
        env: EnvIndex(env),
        episode: 0,
        seed: 0,
        inference: 0,
        window: Window::new(Arc::new(observation)),
        continues: None,
        noise: None,
    }
}

/// Returns the chunks of rows, none of which may have failed.
pub(crate) fn chunks(answers: Result<Vec<RowAnswer>, PolicyError>) -> Vec<Chunk> {
    let chunk = |answer| match answer {
        RowAnswer::Chunk(chunk) => chunk,
        other => panic!("expected a chunk: {other:?}"),
    };
    answers.unwrap().into_iter().map(chunk).collect()
}

/// Returns the table-top's action vector and state keys, without a simulator.
pub(crate) fn env_spec() -> EnvSpec {
    let names = ["dx", "dy", "dz", "droll", "dpitch", "dyaw", "gripper"];
    let state = [
        ("joint_position", 7),
        ("joint_velocity", 7),
        ("gripper_position", 1),
        ("eef_position", 3),
        ("eef_quaternion", 4),
        ("object_position", 3),
        ("object_quaternion", 4),
        ("goal_position", 3),
    ];
    let interface = Interface {
        name: "push".to_owned(),
        state: state
            .map(|(name, length)| (name.to_owned(), length))
            .to_vec(),
        cameras: Vec::new(),
        action: ActionSpec {
            names: names.map(str::to_owned).to_vec(),
            low: vec![-1.0; 7],
            high: vec![1.0; 7],
            grid: Vec::new(),
        },
        control_hz: 20,
        max_episode_steps: 200,
        language: String::new(),
    };
    EnvSpec {
        ends_on_success: true,
        ..EnvSpec::seen(interface)
    }
}

#[test]
fn a_chunk_ends_at_its_horizon() {
    let chunk = Chunk::new(2, vec![1.0, 2.0, 3.0, 4.0]);
    assert_eq!(
        (chunk.horizon(), chunk.action(1), chunk.action(2)),
        (2, Some(&[3.0, 4.0][..]), None)
    );
}
