//! Reads a job's settings of a GR00T policy: `policy_config_dict`, merged over the YAML file that
//! it may name.
//!
//! The YAML format is that of Isaac Lab Arena (`gr00t_closedloop_policy.py`). Every field may also
//! be given in the job.

use std::path::{Path, PathBuf};

use jobs::hub;
use serde_json::{Map, Value};
use tch::Kind;

use crate::policy::PolicyError;
use crate::policy::argument;
use jobs::policies::{self, Batching, Dtype, Gr00t, Gr00tWiring};
use jobs::wiring::Joints;

/// The settings of a job's GR00T policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Gr00tSettings {
    /// The files that the settings name beside the checkpoint.
    pub files: Vec<PathBuf>,
    /// Directory of the checkpoint.
    pub model_path: PathBuf,
    /// Directory of the backbone's tokenizer and configuration, unless it is `vlm/` in the
    /// checkpoint.
    pub vlm_path: Option<PathBuf>,
    /// The embodiment to use; if none is named, the checkpoint must have only one.
    pub embodiment_tag: Option<String>,
    /// Number of actions of a chunk that may be used, at most that of the checkpoint.
    pub action_horizon: Option<usize>,
    /// Number of actions of a chunk that are executed.
    pub chunk_length: Option<usize>,
    /// Number of Euler steps; the checkpoint's if not given.
    pub denoising_steps: Option<usize>,
    /// The instruction to use if neither job nor environment has one.
    pub language: Option<String>,
    /// Cameras of the environment in the order of the checkpoint's video keys; matched by name if
    /// not given.
    pub cameras: Option<Vec<String>>,
    /// Joints of the simulator by name, for robots whose state is one vector.
    pub joints: Option<Joints>,
    /// Element type of the computation; bfloat16 on a GPU and float32 on a CPU if not given.
    pub kind: Option<Kind>,
    /// Added to the seeds of the episodes to get the seeds of the noise from which actions start.
    pub seed: u64,
    /// Whether prompts of different lengths share padded batches as in the reference; otherwise
    /// they go into the network one after the other.
    pub padded_batches: bool,
    /// Rate at which the actions that a chunk shares with the previous one become free to change;
    /// chunks do not continue each other if not given.
    pub rtc_ramp_rate: Option<f64>,
    /// Whether a GPU replays captured passes instead of launching operators one by one; on by
    /// default.
    pub cuda_graphs: bool,
}

impl Gr00tSettings {
    /// Reads the settings and the files that they name.
    ///
    /// # Errors
    /// Returns an error for a wrong field or a missing checkpoint.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let given: Gr00t = policies::read(config)?;
        let wiring = given.wiring;
        let joints = Joints::read(&wiring)?;
        let (action_horizon, chunk_length) = lengths(&wiring)?;
        Ok(Self {
            files: wiring.files().cloned().collect(),
            model_path: find_model(&given.model_path)?,
            vlm_path: given.vlm_path,
            embodiment_tag: given.embodiment_tag,
            action_horizon,
            chunk_length,
            denoising_steps: given.denoising_steps.map(usize::from),
            language: wiring.language_instruction.filter(|text| !text.is_empty()),
            cameras: wiring.pov_cam_name_sim.map(|names| names.0),
            joints,
            kind: given.dtype.map(|dtype| match dtype {
                Dtype::Bfloat16 => Kind::BFloat16,
                Dtype::Float32 => Kind::Float,
            }),
            seed: wiring.seed,
            padded_batches: given.batching == Batching::Padded,
            rtc_ramp_rate: given.rtc_ramp_rate,
            cuda_graphs: given.cuda_graphs,
        })
    }

    /// Returns what the policy is made from.
    pub(in crate::policy) fn files(&self) -> Vec<PathBuf> {
        let checkpoint = std::iter::once(&self.model_path).chain(&self.vlm_path);
        checkpoint.chain(&self.files).cloned().collect()
    }
}

/// Returns how many actions of a chunk may be used and how many are executed, if the job says so.
pub(super) fn lengths(wiring: &Gr00tWiring) -> Result<(Option<usize>, Option<usize>), PolicyError> {
    let [horizon, length] =
        [wiring.action_horizon, wiring.action_chunk_length].map(|number| number.map(usize::from));
    policies::check_chunk_length(length, horizon)?;
    Ok((horizon, length))
}

/// Finds a folder, or a model of the Hugging Face hub that has already been downloaded.
pub(crate) fn find_model(given: &Path) -> Result<PathBuf, PolicyError> {
    if given.is_dir() {
        return Ok(given.to_owned());
    }
    let name = given.to_string_lossy();
    let refuse = |wanted: &str| {
        argument(
            "model_path",
            &format!("`{name}`, which is not a folder"),
            wanted,
        )
    };
    if !hub::is_name(given) {
        return Err(refuse("expected the folder of a checkpoint"));
    }
    let wanted =
        format!("expected a folder or a downloaded model: `hf download {name}` downloads it");
    hub::snapshot(&name, |variable| std::env::var_os(variable)).ok_or_else(|| refuse(&wanted))
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
        let settings = Gr00tSettings::read(config.as_object().unwrap()).unwrap();
        assert_eq!(settings.model_path, folder.path().join("model"));
        let lengths = (settings.action_horizon, settings.chunk_length);
        assert_eq!(lengths, (Some(16), Some(8)));
        assert_eq!(settings.language, None);
        assert_eq!(settings.cameras.unwrap(), ["robot_pov_cam_rgb"]);
        assert!(settings.joints.is_some());
        let named = ["policy", "policy_joints", "state_joints", "state_joints"];
        let named = named.map(|name| folder.path().join(format!("{name}.yaml")));
        assert_eq!(settings.files, named, "their contents decide the actions");
    }
}
