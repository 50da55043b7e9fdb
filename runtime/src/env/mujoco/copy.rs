//! One copy of the environment: MuJoCo's state, the commanded pose, and the state of the episode.

use std::sync::Arc;

use mujoco_rs::prelude::{MjData, MjModel, MjtWarning};

use crate::env::mujoco::arm::{Commander, HOME, HandPose};
use crate::env::mujoco::model::{ARM_JOINTS, ROBOT_JOINTS, SceneModel};
use crate::env::mujoco::rotation::{from_vector, rotate};
use crate::env::mujoco::task::{EpisodeRng, TaskState};
use crate::env::{Observation, Step};

/// Physics steps in one control step: 20 of 2.5 ms make 50 ms.
pub(super) const DECIMATION: u32 = 20;

/// Number of components of an action.
pub(super) const ACTION_DIM: usize = 7;

/// Travel of each finger from closed to open, in metres.
const OPEN: f64 = 0.04;

/// Noise on each arm joint at the start of an episode, in radians.
const START_NOISE: f64 = 0.03;

/// Height in metres below which an object has fallen off the table.
const FALLEN: f64 = -0.05;

/// One copy of the environment.
pub(super) struct EnvCopy {
    pub(super) data: MjData<Arc<MjModel>>,
    /// Seed of the last episode, and its number of steps so far.
    pub(super) seed: Option<u64>,
    pub(super) step: u32,
    episode: Option<CopyEpisode>,
}

struct CopyEpisode {
    commander: Commander,
    /// Number of steps for which the task has been solved.
    held: u32,
}

impl EnvCopy {
    pub(super) fn new(model: &SceneModel) -> Self {
        Self {
            data: MjData::new(Arc::clone(&model.mj)),
            seed: None,
            step: 0,
            episode: None,
        }
    }

    /// Starts an episode whose randomness comes from `seed` alone.
    pub(super) fn reset(&mut self, model: &SceneModel, seed: u64) {
        let settings = &model.settings;
        let mut rng = EpisodeRng(seed);
        let layout = (settings.task.sample)(&mut rng);
        let joints = HOME.map(|angle| angle + rng.uniform(-START_NOISE, START_NOISE));
        // This also clears time, warm start, controls and warnings.
        self.data.reset();
        let start: [f64; ROBOT_JOINTS] =
            std::array::from_fn(|joint| joints.get(joint).copied().unwrap_or(OPEN));
        self.data.qpos_mut()[..ROBOT_JOINTS].copy_from_slice(&start);
        self.data.ctrl_mut()[..ROBOT_JOINTS].copy_from_slice(&start);
        self.data.mocap_pos_mut()[0] = layout.goal;
        if let Some(object) = settings.object {
            let [x, y] = layout.object;
            let [w, i, j, k] = from_vector([0.0, 0.0, layout.object_yaw]);
            let pose = [x, y, object.rest_height, w, i, j, k];
            self.data.qpos_mut()[ROBOT_JOINTS..].copy_from_slice(&pose);
        }
        self.refresh();
        let commander = Commander::new(HandPose::of_hand(model, &self.data), joints);
        (self.seed, self.step) = (Some(seed), 0);
        self.episode = Some(CopyEpisode { commander, held: 0 });
    }

    /// Runs one control step with an action; the observation has no images.
    ///
    /// # Errors
    /// Returns the reason if the episode cannot continue; the copy then needs a reset.
    pub(super) fn step(
        &mut self,
        model: &SceneModel,
        scratch: &mut MjData<Arc<MjModel>>,
        action: &[f32],
    ) -> Result<Step, String> {
        let settings = &model.settings;
        let mut episode = self
            .episode
            .take()
            .ok_or("it was stepped before a reset, or after its episode's last step")?;
        self.step += 1;
        let given = action;
        let action = checked(action)?;
        let measured = HandPose::of_hand(model, &self.data);
        let from = *episode.commander.joints();
        let to = episode.commander.command(model, scratch, measured, &action);
        self.data.ctrl_mut()[ARM_JOINTS..].fill(if action[6] > 0.0 { 0.0 } else { OPEN });
        for tick in 1..=DECIMATION {
            // Targets move evenly through the step: a jump of the servos would throw a held object.
            let part = f64::from(tick) / f64::from(DECIMATION);
            let ctrl = &mut self.data.ctrl_mut()[..ARM_JOINTS];
            ctrl.iter_mut()
                .zip(from.iter().zip(&to))
                .for_each(|(ctrl, (from, to))| *ctrl = from + (to - from) * part);
            self.data.step();
            self.check()?;
        }
        self.refresh();
        let scene = self.scene(model);
        let holds = (settings.task.distance)(&scene) < settings.success_threshold;
        episode.held = if holds { episode.held + 1 } else { 0 };
        let success = episode.held >= settings.success_hold_steps;
        let terminated = success || scene.object[2] < FALLEN;
        let is_last = self.step >= settings.max_episode_steps;
        // A caller that ignores the termination can continue until the time limit.
        self.episode = (!is_last).then_some(episode);
        Ok(Step {
            observation: self.observe(model),
            processed_action: action.to_vec(),
            out_of_bounds: action[..] != *given,
            reward: f32::from(u8::from(holds)),
            success,
            terminated,
            truncated: !terminated && is_last,
        })
    }

    /// Checks for divergence. MuJoCo resets diverged data by itself and only counts it.
    fn check(&self) -> Result<(), String> {
        let step = self.step;
        let bad = [
            (MjtWarning::mjWARN_BADQPOS, "position"),
            (MjtWarning::mjWARN_BADQVEL, "velocity"),
            (MjtWarning::mjWARN_BADQACC, "acceleration"),
        ];
        for (warning, what) in bad {
            let found = &self.data.warning()[warning as usize];
            if found.number > 0 {
                let which = format!("{what} {}", found.lastinfo);
                return Err(format!(
                    "the simulation diverged: {which} is not finite or too large in step {step}"
                ));
            }
        }
        Ok(())
    }

    /// Updates the poses of bodies, sites, cameras and lights from the joint positions; dynamics
    /// are not computed.
    fn refresh(&mut self) {
        self.data.kinematics();
        self.data.com_pos();
        self.data.camlight();
    }

    fn scene(&self, model: &SceneModel) -> TaskState {
        let object = self.object_pose();
        TaskState {
            hand: HandPose::of_hand(model, &self.data).position,
            goal: self.data.mocap_pos()[0],
            object: object.map_or([0.0; 3], |[x, y, z, ..]| [x, y, z]),
            rest_height: model
                .settings
                .object
                .map_or(0.0, |object| object.rest_height),
        }
    }

    /// Returns position and quaternion of the object, if there is one.
    fn object_pose(&self) -> Option<[f64; 7]> {
        self.data.qpos()[ROBOT_JOINTS..].first_chunk().copied()
    }

    /// Returns the state vectors, in the order of [`Interface::state`](jobs::interface::Interface).
    pub(super) fn state(&self, model: &SceneModel) -> Vec<(String, Vec<f32>)> {
        let hand = HandPose::of_hand(model, &self.data);
        let (qpos, qvel) = (self.data.qpos(), self.data.qvel());
        let mut state = vec![
            named("joint_position", &qpos[..ARM_JOINTS]),
            named("joint_velocity", &qvel[..ARM_JOINTS]),
            named("gripper_position", &qpos[ARM_JOINTS..ROBOT_JOINTS]),
            named("eef_position", &hand.position),
            named("eef_quaternion", &hand.quaternion),
            named("goal_position", &self.data.mocap_pos()[0]),
        ];
        if let Some(pose) = self.object_pose() {
            state.push(named("object_position", &pose[..3]));
            state.push(named("object_quaternion", &pose[3..]));
        }
        state
    }

    /// Returns the state of the simulator by Isaac Lab's recorder path.
    fn sim_state(&self) -> Vec<(String, Vec<f32>)> {
        let (qpos, qvel) = (self.data.qpos(), self.data.qvel());
        let [x, y, z] = self.data.mocap_pos()[0];
        let robot = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
        let mut state = vec![
            named("articulation/robot/joint_position", &qpos[..ROBOT_JOINTS]),
            named("articulation/robot/joint_velocity", &qvel[..ROBOT_JOINTS]),
            named("articulation/robot/root_pose", &robot),
            named(
                "rigid_object/goal/root_pose",
                &[x, y, z, 1.0, 0.0, 0.0, 0.0],
            ),
            named("rigid_object/goal/root_velocity", &[0.0; 6]),
        ];
        if let Some(pose) = self.object_pose() {
            let velocity = world_velocity(&pose, &qvel[ROBOT_JOINTS..]);
            state.push(named("rigid_object/object/root_pose", &pose));
            state.push(named("rigid_object/object/root_velocity", &velocity));
        }
        state
    }

    /// Returns the current observation without images.
    pub(super) fn observe(&self, model: &SceneModel) -> Observation {
        Observation {
            state: self.state(model).into_iter().collect(),
            language: Arc::clone(&model.settings.language),
            sim_state: self.sim_state().into_iter().collect(),
            ..Observation::default()
        }
    }
}

/// Converts the velocity of a free body to the world frame. MuJoCo gives the angular velocity in
/// the body's own frame, Isaac Lab in the world frame.
fn world_velocity(pose: &[f64; 7], velocity: &[f64]) -> [f64; 6] {
    let &[_, _, _, w, i, j, k] = pose;
    let [x, y, z] = [velocity[0], velocity[1], velocity[2]];
    let [a, b, c] = rotate([w, i, j, k], [velocity[3], velocity[4], velocity[5]]);
    [x, y, z, a, b, c]
}

fn named(name: &str, values: &[f64]) -> (String, Vec<f32>) {
    (name.to_owned(), values.iter().map(|&v| v as f32).collect())
}

fn checked(action: &[f32]) -> Result<[f32; ACTION_DIM], String> {
    let action: [f32; ACTION_DIM] = action.try_into().map_err(|_| {
        let found = action.len();
        format!("its action has {found} values, expected {ACTION_DIM}")
    })?;
    match action.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(format!("value {index} of its action is {}", action[index])),
        None => Ok(action.map(|value| value.clamp(-1.0, 1.0))),
    }
}
