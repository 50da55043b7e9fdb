//! The compiled model of a job, and the indices of its parts in MuJoCo's arrays.

use std::sync::Arc;

use mujoco_rs::prelude::{MjModel, MjtObjBase};
use mujoco_rs::wrappers::mj_auxiliary::MjVfs;

use jobs::environments::Quality;

use crate::env::EnvError;
use crate::env::mujoco::task::MujocoSettings;

/// Number of joints of the arm. They come first in the model, then the fingers, then the object.
pub(super) const ARM_JOINTS: usize = 7;

/// Number of joints of arm and gripper.
pub(super) const ROBOT_JOINTS: usize = 9;

/// Names of the cameras, from left to right in a video.
pub(super) const CAMERAS: [&str; 2] = ["front", "wrist"];

/// A job's environment: its settings, their model, and the indices that every step needs.
pub(super) struct SceneModel {
    pub(super) settings: MujocoSettings,
    pub(super) mj: Arc<MjModel>,
    /// Index of the site between the finger tips.
    pub(super) grip: usize,
    /// IDs of [`CAMERAS`].
    pub(super) cameras: [usize; 2],
    /// Limits of the arm's joints, in radians.
    pub(super) limits: [[f64; 2]; ARM_JOINTS],
}

impl SceneModel {
    /// Compiles the scene of a task.
    pub(super) fn new(settings: MujocoSettings) -> Result<Self, EnvError> {
        let task = settings.task.name;
        let broken =
            |reason: String| EnvError::Setup(format!("the scene of task `{task}` {reason}"));
        let compiled = compile(&settings);
        let mj = compiled.map_err(|reason| broken(format!("does not compile: {reason}")))?;
        let model = Self::with_indices(settings, mj);
        model.ok_or_else(|| broken("lacks a part of the arm or a camera".to_owned()))
    }

    fn with_indices(settings: MujocoSettings, mj: MjModel) -> Option<Self> {
        let grip = mj.name_to_id(MjtObjBase::mjOBJ_SITE, "grip")?;
        let front = mj.name_to_id(MjtObjBase::mjOBJ_CAMERA, CAMERAS[0])?;
        let wrist = mj.name_to_id(MjtObjBase::mjOBJ_CAMERA, CAMERAS[1])?;
        let first = mj.name_to_id(MjtObjBase::mjOBJ_JOINT, "joint1")?;
        let finger = mj.name_to_id(MjtObjBase::mjOBJ_JOINT, "finger_left")?;
        let limits = mj.jnt_range().first_chunk().copied()?;
        ((first, finger) == (0, ARM_JOINTS)).then(|| Self {
            settings,
            mj: Arc::new(mj),
            grip,
            cameras: [front, wrist],
            limits,
        })
    }
}

fn compile(settings: &MujocoSettings) -> Result<MjModel, String> {
    let mut parts = vec![
        ("scene.xml", include_str!("assets/scene.xml")),
        ("arm.xml", include_str!("assets/arm.xml")),
        ("task.xml", settings.task.mjcf),
    ];
    parts.extend(settings.object.map(|object| ("object.xml", object.mjcf)));
    let mut files = MjVfs::new();
    for (name, text) in parts {
        let added = files.add_from_buffer(name, text.as_bytes());
        added.map_err(|error| format!("{name}: {error}"))?;
    }
    let mut mj = MjModel::from_xml_vfs("task.xml", &files).map_err(|error| error.to_string())?;
    look(&mut mj, settings);
    Ok(mj)
}

/// Sets image size, light and quality.
fn look(mj: &mut MjModel, settings: &MujocoSettings) {
    let visual = mj.vis_mut();
    visual.global.offwidth = settings.camera_width as i32;
    visual.global.offheight = settings.camera_height as i32;
    let (shadow, samples) = match settings.quality {
        Quality::Fast => (0, 0),
        Quality::High => (1024, 4),
    };
    visual.quality.shadowsize = shadow;
    visual.quality.offsamples = samples;
    let scale =
        |light: &mut [f32; 3]| *light = light.map(|part| (part * settings.light_scale).min(1.0));
    scale(&mut visual.headlight.ambient);
    scale(&mut visual.headlight.diffuse);
    mj.light_diffuse_mut().iter_mut().for_each(scale);
    mj.light_specular_mut().iter_mut().for_each(scale);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::env::mujoco::ffi::install_log_handler;
    use crate::env::mujoco::model::{ROBOT_JOINTS, SceneModel};
    use crate::env::mujoco::task::{MujocoSettings, TABLE};

    #[test]
    fn the_cameras_are_those_that_the_launcher_knows() {
        let row = jobs::environments::Simulator::TableTop.row();
        assert_eq!(row.cameras, crate::env::mujoco::model::CAMERAS);
    }

    #[test]
    fn every_task_compiles_with_each_of_its_objects() {
        install_log_handler();
        let joints = |task: &str, args: Value| {
            let settings = MujocoSettings::new(task, None, args.as_object().unwrap());
            SceneModel::new(settings.unwrap()).unwrap().mj.ffi().nq as usize
        };
        for task in &TABLE {
            assert!(joints(task.name, json!({})) >= ROBOT_JOINTS);
            for object in task.objects {
                let with_object = joints(task.name, json!({"object": object.name}));
                assert_eq!(with_object, ROBOT_JOINTS + 7);
            }
        }
    }
}
