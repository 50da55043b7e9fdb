//! Tests of the environment through its public interface.

use std::collections::VecDeque;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::env::egl::{self, EglDevice, EglDriver, EglRequest, Gpu};
use crate::env::mujoco::copy::EnvCopy;
use crate::env::mujoco::task::TABLE;
use crate::env::mujoco::worker::{Turn, WorkShare, WorkerMessage};
use crate::env::mujoco::{MujocoEnv, MujocoSettings, make};
use crate::env::tests::Lockstep;
use crate::env::{Answer, EnvError, EnvIndex, Observation, Render, Step, VectorEnv as _};
use crate::inbox::Inbox;

impl MujocoEnv {
    /// Does something to a copy in its thread.
    fn harm(&self, env: EnvIndex, harm: fn(&mut EnvCopy)) {
        let worker = &self.workers[self.owners[env.0]];
        worker.end.send(WorkerMessage::Test(env, harm)).unwrap();
    }
}

fn env_on(egl: &[EglRequest], task: &str, args: Value) -> Lockstep<MujocoEnv> {
    let settings = MujocoSettings::new(task, None, args.as_object().unwrap()).unwrap();
    Lockstep::new(make(settings, egl, 2).unwrap())
}

fn env_with(task: &str, args: Value) -> Lockstep<MujocoEnv> {
    env_on(&[EglRequest::default()], task, args)
}

/// Returns some copies of a task in two threads.
pub(crate) fn env(task: &str, num_envs: usize) -> Lockstep<MujocoEnv> {
    env_on(&vec![EglRequest::default(); num_envs], task, json!({}))
}

fn reset(env: &mut Lockstep<MujocoEnv>, copy: usize, seed: u64) -> Observation {
    env.reset(&[(EnvIndex(copy), seed)], Render::No)
        .remove(0)
        .unwrap()
}

fn step(env: &mut Lockstep<MujocoEnv>, copy: usize, action: [f32; 7]) -> Result<Step, EnvError> {
    env.step(&[(EnvIndex(copy), action.to_vec())], Render::No)
        .remove(0)
}

/// Returns an action that depends on the time alone, moves every joint, and closes and opens the
/// gripper.
fn wave(time: usize) -> [f32; 7] {
    let phase = time as f32 * 0.37;
    let [x, y] = [phase.sin(), phase.cos()].map(|part| part * 0.4);
    let [yaw, gripper] = [0.5, 0.3].map(|speed| (phase * speed).sin());
    [x, y, -0.25, 0.1, -0.1, yaw, gripper]
}

fn trajectory(env: &mut Lockstep<MujocoEnv>, copy: usize, seed: u64) -> Vec<Observation> {
    let first = reset(env, copy, seed);
    let rest = (0..30).map(|time| step(env, copy, wave(time)).unwrap().observation);
    std::iter::once(first).chain(rest).collect()
}

#[test]
fn an_episode_comes_from_its_seed_alone() {
    for task in TABLE.each_ref().map(|task| task.name) {
        let (mut one, mut five) = (env(task, 1), env(task, 5));
        let expected = trajectory(&mut one, 0, 11);
        assert_ne!(trajectory(&mut one, 0, 12), expected);
        let again = trajectory(&mut one, 0, 11);
        assert_eq!(again, expected, "{task}: after another episode");
        trajectory(&mut five, 3, 99);
        let other = trajectory(&mut five, 3, 11);
        assert_eq!(other, expected, "{task}: in another copy");
    }
}

#[test]
fn copies_do_not_disturb_each_other() {
    let mut alone = env("push", 1);
    let expected = trajectory(&mut alone, 0, 2);
    let mut three = env("push", 3);
    let envs = [EnvIndex(2), EnvIndex(0), EnvIndex(1)];
    let first = three.reset(&envs.map(|copy| (copy, 2)), Render::No);
    let seen: Vec<_> = first.into_iter().map(Result::unwrap).collect();
    assert!(seen.iter().all(|seen| *seen == expected[0]));
    for time in 0..30 {
        let steps = three.step(&envs.map(|copy| (copy, wave(time).to_vec())), Render::No);
        let mut seen = steps.into_iter().map(|step| step.unwrap().observation);
        assert!(seen.all(|seen| seen == expected[time + 1]));
    }
}

#[test]
fn recorded_paths_are_those_of_isaac_lab() {
    let observation = reset(&mut env("push", 1), 0, 0);
    let found = observation.sim_state.iter();
    let found = found.map(|(key, values)| (key.as_str(), values.len()));
    let wanted = [
        ("articulation/robot/joint_position", 9),
        ("articulation/robot/joint_velocity", 9),
        ("articulation/robot/root_pose", 7),
        ("rigid_object/goal/root_pose", 7),
        ("rigid_object/goal/root_velocity", 6),
        ("rigid_object/object/root_pose", 7),
        ("rigid_object/object/root_velocity", 6),
    ];
    assert!(found.eq(wanted), "{:?}", observation.sim_state);
}

/// Returns the position of the hand after so many steps without an action.
fn hand_after(env: &mut Lockstep<MujocoEnv>, steps: usize) -> Vec<f32> {
    let last = (0..steps).map(|_| step(env, 0, [0.0; 7]).unwrap()).last();
    last.unwrap().observation.state["eef_position"].clone()
}

#[test]
fn no_action_holds_the_hand_still_and_an_action_moves_it_by_its_scale() {
    let mut env = env("reach", 1);
    let before = reset(&mut env, 0, 1).state["eef_position"].clone();
    let after = hand_after(&mut env, 60);
    let moved = |at: usize| after[at] - before[at];
    assert!(
        (0..3).all(|at| moved(at).abs() < 1e-3),
        "{after:?} {before:?}"
    );
    step(&mut env, 0, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, -1.0]).unwrap();
    let moved = hand_after(&mut env, 5)[1] - after[1];
    assert!((moved - 0.05).abs() < 2e-3, "moved {moved} m");
}

#[test]
fn the_last_step_is_truncated_and_no_other_follows() {
    let args = json!({"max_episode_steps": 2});
    let mut env = env_with("reach", args);
    reset(&mut env, 0, 0);
    assert!(!step(&mut env, 0, [0.0; 7]).unwrap().truncated);
    assert!(step(&mut env, 0, [0.0; 7]).unwrap().truncated);
    let refused = step(&mut env, 0, [0.0; 7]).unwrap_err().to_string();
    assert!(
        refused.contains("after its episode's last step"),
        "{refused}"
    );
}

#[test]
fn success_must_hold() {
    let args = json!({"success_threshold": 1.0, "success_hold_steps": 3});
    let mut env = env_with("reach", args);
    reset(&mut env, 0, 0);
    let steps = [0, 1, 2].map(|_| step(&mut env, 0, [0.0; 7]).unwrap());
    assert_eq!(
        steps.map(|step| (step.reward, step.success)),
        [(1.0, false), (1.0, false), (1.0, true)]
    );
}

#[test]
fn diverged_simulation_is_an_error_and_a_reset_heals_it() {
    let mut env = env("push", 2);
    let expected = trajectory(&mut env, 1, 4);
    reset(&mut env, 1, 4);
    let diverge = |copy: &mut EnvCopy| copy.data.qpos_mut()[0] = f64::NAN;
    env.env().harm(EnvIndex(1), diverge);
    let error = step(&mut env, 1, [0.0; 7]).unwrap_err().to_string();
    let wanted = "the simulation diverged: position 0 is not finite or too large in step 1";
    assert_eq!(error, format!("environment 1: {wanted}"));
    assert!(step(&mut env, 1, [0.0; 7]).is_err());
    assert_eq!(trajectory(&mut env, 1, 4), expected);
}

#[test]
fn bad_actions_are_errors_of_their_episode() {
    let mut env = env("reach", 1);
    let nan = vec![0.0, f32::NAN, 0.0, 0.0, 0.0, 0.0, 0.0];
    for (action, reason) in [
        (
            vec![0.0; 3],
            "environment 0: its action has 3 values, expected 7",
        ),
        (nan, "environment 0: value 1 of its action is NaN"),
    ] {
        reset(&mut env, 0, 0);
        let refused = env.step(&[(EnvIndex(0), action)], Render::No).remove(0);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.starts_with(reason), "{refused}");
    }
}

/// Returns the images of one reset, or `None` on a machine without EGL.
fn pictures(mut env: Lockstep<MujocoEnv>) -> Option<Observation> {
    match env.reset(&[(EnvIndex(0), 1)], Render::Yes).remove(0) {
        Ok(observation) => Some(observation),
        Err(error) => {
            assert!(
                error.to_string().contains("libegl1") && error.to_string().contains("--no-video"),
                "{error}"
            );
            rig::need::lacks("EGL", error);
            None
        }
    }
}

#[test]
fn pictures_have_their_size_and_show_something() {
    let args = json!({"camera_height": 96, "camera_width": 320});
    let Some(observation) = pictures(env_with("pick_and_place", args)) else {
        return;
    };
    assert!(observation.video.keys().eq(["front", "wrist"]));
    for frame in observation.video.values() {
        let size = (frame.height, frame.width, frame.rgb.len());
        assert_eq!(size, (96, 320, 96 * 320 * 3));
        let shades: std::collections::BTreeSet<_> = frame.rgb.chunks_exact(3).collect();
        assert!(shades.len() > 50, "{} colours", shades.len());
    }
}

#[test]
fn pictures_are_the_same_in_every_copy_and_do_not_change_the_episode() {
    let Some(expected) = pictures(env("push", 1)) else {
        return;
    };
    let mut envs = env("push", 3);
    reset(&mut envs, 2, 8);
    let found = envs
        .reset(&[(EnvIndex(2), 1)], Render::Yes)
        .remove(0)
        .unwrap();
    assert_eq!(found, expected);
    assert_eq!(reset(&mut envs, 2, 1).state, expected.state);
}

#[test]
fn pictures_larger_than_mujocos_default_buffer_are_whole() {
    let args = json!({"camera_height": 700, "camera_width": 900});
    let Some(observation) = pictures(env_with("reach", args)) else {
        return;
    };
    let frame = &observation.video["front"];
    let corner = &frame.rgb[frame.rgb.len() - 3..];
    assert_ne!(corner, [0, 0, 0], "the lower right corner was not drawn");
}

/// Returns the request of a rank on this GPU.
fn on_gpu(index: usize) -> EglRequest {
    let gpu = Gpu {
        index,
        number: u32::try_from(index).ok(),
        pci: Some("0000:81:00".to_owned()),
    };
    EglRequest {
        gpu: Some(gpu),
        local_rank: index,
        ..EglRequest::default()
    }
}

/// Returns the EGL devices of this machine if none is NVIDIA's; then no GPU has its own device.
fn devices_without_nvidia() -> Option<&'static [EglDevice]> {
    let known = &egl::devices().ok()?.known;
    let is_nvidia = |device: &EglDevice| matches!(device.driver, EglDriver::Nvidia { .. });
    (!known.is_empty() && !known.iter().any(is_nvidia)).then_some(known)
}

#[test]
fn a_gpu_without_an_egl_device_of_its_own_gets_what_there_is_and_the_user_is_told() {
    let Some(devices) = devices_without_nvidia() else {
        return rig::need::lacks("EGL without a GPU", "there is none, or one with a GPU");
    };
    let mut on_gpus = env_on(&[on_gpu(1), on_gpu(1)], "reach", json!({}));
    let notes = on_gpus.env().open_renderers().unwrap();
    assert_eq!(notes.len(), 1, "two threads, one note: {notes:?}");
    let is_told = notes[0].contains("no EGL device belongs to cuda:1");
    assert!(is_told, "{notes:?} of {devices:?}");
    let expected = pictures(env("reach", 1)).unwrap();
    assert_eq!(pictures(on_gpus), Some(expected));
}

#[test]
fn a_rank_without_a_gpu_is_told_nothing() {
    if egl::devices().is_ok_and(|devices| !devices.known.is_empty()) {
        let notes = env("reach", 2).env().open_renderers().unwrap();
        assert_eq!(notes, [""; 0]);
    }
}

#[test]
fn a_device_that_is_asked_for_and_not_there_is_refused_with_those_that_are() {
    let Some(devices) = devices_without_nvidia() else {
        return;
    };
    let asked = EglRequest {
        device: Some(77),
        ..on_gpu(0)
    };
    let mut env = env_on(&[asked], "reach", json!({}));
    let refused = env.env().open_renderers().unwrap_err().to_string();
    assert!(refused.starts_with("--egl-device 77: there "), "{refused}");
    assert!(
        refused.ends_with(&format!("0: {})", devices[0])) || devices.len() > 1,
        "{refused}"
    );
    let drawn = env.reset(&[(EnvIndex(0), 1)], Render::Yes).remove(0);
    assert_eq!(drawn.unwrap_err().to_string(), refused);
}

/// Set in the process that `a_fatal_error_is_told_before_the_process_ends` starts.
const CHILD: &str = "RRUN_TEST_FATAL_ERROR";

#[test]
fn a_fatal_error_is_told_before_the_process_ends() {
    if std::env::var_os(CHILD).is_some() {
        let mut env = env("push", 2);
        reset(&mut env, 1, 42);
        step(&mut env, 1, [0.0; 7]).unwrap();
        env.env().harm(EnvIndex(1), |_| {
            mujoco_rs::prelude::log_error("the stack is full")
        });
        step(&mut env, 1, [0.0; 7]).ok();
        unreachable!("MuJoCo returned from a fatal error");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("error.json");
    let name = "a_fatal_error_is_told_before_the_process_ends";
    let child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--nocapture"])
        .env(CHILD, "1")
        .env("TORCHELASTIC_ERROR_FILE", &file)
        .output()
        .unwrap();
    let told = "MuJoCo stopped in task `push`, environment 1, step 1 of seed 42: the stack is full";
    assert_eq!(child.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&child.stderr).contains(told));
    let written: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(written["message"]["message"], told);
    let timestamp = written["message"]["extraInfo"]["timestamp"]
        .as_str()
        .unwrap();
    assert!(timestamp.parse::<u64>().unwrap() > 0);
}

#[test]
fn commands_that_a_dead_thread_has_not_taken_are_answered_with_those_of_the_others() {
    let inbox = Arc::new(Inbox::new().unwrap());
    let turn = Arc::new(Turn {
        answered: Mutex::default(),
        inbox: Arc::clone(&inbox),
    });
    let reset = crate::env::Command::Reset {
        seed: 1,
        episode: 1,
        render: Render::No,
    };
    let share = |env| WorkShare {
        work: VecDeque::from([(EnvIndex(env), reset.clone())]),
        turn: Arc::clone(&turn),
    };
    let (waiting, working) = (share(3), share(4));
    drop(turn);
    drop(waiting);
    assert!(inbox.take().is_empty(), "the other thread is at work");
    drop(working);
    let told = inbox.take().into_iter().map(|(env, answer)| match answer {
        Answer::Reset(Err(err)) => (env.0, err.to_string()),
        other => panic!("{other:?}"),
    });
    let gone = |env| format!("the simulation thread of environment {env} has ended");
    assert_eq!(told.collect::<Vec<_>>(), [(3, gone(3)), (4, gone(4))]);
}
