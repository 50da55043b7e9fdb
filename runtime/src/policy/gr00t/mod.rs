//! A GR00T N1.7 checkpoint as a policy: reads the settings of a job, assigns cameras and states to
//! the network's inputs, and infers batches. The network itself is in the crate [`models`].
//!
//! ```text
//! settings (job, YAML) ─► policy ◄─ model (loaded checkpoint)
//!                          │
//! Observation ─► wiring ─► inference: models ─► wiring ─► Chunk
//! ```
//! The YAML format is that of Isaac Lab Arena (`gr00t_closedloop_policy.py`). Every field may also
//! be given in the job, which goes before the file.

pub mod inference;

mod continuing;
mod policy;

pub use policy::Gr00tPolicy;
pub(crate) use policy::placed;

use jobs::hub;
use serde_json::{Map, Value};

use crate::policy::PolicyError;
use jobs::policies::{self, Gr00t, Gr00tWiring};
use jobs::wiring::Joints;

/// Reads the settings, checks the files that they name, and finds the checkpoint.
///
/// # Errors
/// Returns an error for a wrong field or a missing checkpoint.
pub fn read(config: &Map<String, Value>) -> Result<Gr00t, PolicyError> {
    let mut given: Gr00t = policies::read(config)?;
    Joints::read(&given.wiring)?;
    lengths(&given.wiring)?;
    given.model_path = hub::checkpoint(&given.model_path, |name| std::env::var_os(name))?;
    Ok(given)
}

/// Returns how many actions of a chunk may be used and how many are executed, if the job says so.
pub(crate) fn lengths(wiring: &Gr00tWiring) -> Result<(Option<usize>, Option<usize>), PolicyError> {
    let [horizon, length] =
        [wiring.action_horizon, wiring.action_chunk_length].map(|number| number.map(usize::from));
    policies::check_chunk_length(length, horizon)?;
    Ok((horizon, length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    #[test]
    fn a_file_as_arena_writes_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("model")).unwrap();
        write(
            "policy_joints.yaml",
            "joints:\n  left_arm: [left_shoulder, left_elbow]\n  left_hand: [L_thumb]\n",
        );
        write(
            "state_joints.yaml",
            "joints:\n  L_thumb: 2\n  left_shoulder: 0\n  left_elbow: 1\n",
        );
        let yaml = "# a comment\nmodel_path: model\nlanguage_instruction: ''\naction_horizon: 16\n\
                    embodiment_tag: GR1\nvideo_backend: decord\noriginal_image_size: [512, 512, 3]\n\
                    target_image_size: [512, 512, 3]\npolicy_device: cuda\npov_cam_name_sim: robot_pov_cam_rgb\n\
                    task_mode_name: gr1_tabletop_manipulation\npolicy_joints_config_path: policy_joints.yaml\n\
                    action_joints_config_path: state_joints.yaml\nstate_joints_config_path: state_joints.yaml\n";
        write("policy.yaml", yaml);
        let config = json!({"policy_config_yaml_path": folder.path().join("policy.yaml"),
                            "policy_device": "cuda:0", "action_chunk_length": 8});
        let settings = read(config.as_object().unwrap()).unwrap();
        assert_eq!(settings.model_path, folder.path().join("model"));
        assert_eq!(lengths(&settings.wiring).unwrap(), (Some(16), Some(8)));
        assert_eq!(settings.wiring.language_instruction.as_deref(), Some(""));
        let cameras = settings.wiring.pov_cam_name_sim.as_ref().unwrap();
        assert_eq!(cameras.0, ["robot_pov_cam_rgb"]);
        assert!(Joints::read(&settings.wiring).unwrap().is_some());
        let named = ["policy", "policy_joints", "state_joints", "state_joints"];
        let named = named.map(|name| folder.path().join(format!("{name}.yaml")));
        let files: Vec<_> = settings.wiring.files().cloned().collect();
        assert_eq!(files, named, "their contents decide the actions");
    }
}
