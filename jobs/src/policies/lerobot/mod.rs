//! What a LeRobot checkpoint says about itself in `config.json` (lerobot 0.6.1,
//! `configs/policies.py`): its type, its inputs and the length of its actions. lerobot reads the
//! same file again when it loads the checkpoint.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::files;
use crate::policies::{argument, of_file};
use crate::refusal::Refusal;

mod mapping;

pub use mapping::FeatureMapping;

/// Maximum bytes of a `config.json`; lerobot's have a few thousand.
const LARGEST_CONFIG: u64 = 1 << 20;

/// Files beside `config.json` that lerobot writes since 0.4. A checkpoint without them has its
/// statistics among its weights.
const PROCESSORS: [&str; 2] = ["policy_preprocessor.json", "policy_postprocessor.json"];

/// Policies whose chunk depends on what they did before in the episode, and on what. lerobot keeps
/// that for one batch of environments that step together.
const WITH_A_PAST: [(&str, &str); 2] =
    [("tdmpc", "its last plan"), ("lingbot_va", "its last chunk")];

/// The description of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct LerobotCheckpoint {
    /// Its file `config.json`.
    pub path: PathBuf,
    /// lerobot's name of the policy: `act`, `diffusion`, `smolvla` and so on.
    pub policy: String,
    /// Its inputs, by name.
    pub inputs: Vec<CheckpointFeature>,
    /// Number of components of an action, if the file says it.
    pub action_size: Option<usize>,
    /// Most actions of a chunk, if that is known for this type of policy.
    pub longest_chunk: Option<usize>,
    /// Length to which it pads states, if it does. A state of this length may be shorter.
    pub padded_state: Option<usize>,
}

/// An input of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "an object")]
pub struct CheckpointFeature {
    /// Its name, such as `observation.images.top`.
    #[serde(skip)]
    pub name: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: FeatureKind,
    /// Its shape without the batch: `[3, height, width]` of a picture, `[n]` of a state.
    pub shape: Vec<usize>,
}

/// What an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum FeatureKind {
    /// Pictures of a camera.
    #[serde(rename = "VISUAL")]
    Picture,
    /// A state vector, of the robot or of the environment.
    #[serde(rename = "STATE", alias = "ENV")]
    State,
    /// Anything else: its processors make it.
    #[serde(other)]
    Other,
}

/// The fields of `config.json` that are read here.
#[derive(Deserialize)]
struct ConfigFile {
    r#type: String,
    #[serde(default)]
    input_features: serde_json::Map<String, Value>,
    #[serde(default)]
    output_features: serde_json::Map<String, Value>,
    #[serde(default)]
    use_peft: bool,
    chunk_size: Option<usize>,
    horizon: Option<usize>,
    n_obs_steps: Option<usize>,
    max_state_dim: Option<usize>,
    temporal_ensemble_coeff: Option<f64>,
}

impl LerobotCheckpoint {
    /// Reads the description of the checkpoint in `folder`, and looks for its other files.
    ///
    /// # Errors
    /// Refuses a file that is missing or cannot be read, and for a
    /// checkpoint that cannot be evaluated.
    pub fn read(folder: &Path) -> Result<Self, Refusal> {
        let path = folder.join("config.json");
        let refuse = |reason: String| of_file(&path, reason);
        let text = files::read(&path, LARGEST_CONFIG)
            .map_err(|err| refuse(format!("{err}; a checkpoint of LeRobot has this file")))?;
        let config: ConfigFile = serde_json::from_slice(&text).map_err(|err| {
            refuse(format!(
                "this is no configuration of a LeRobot policy: {err}"
            ))
        })?;
        config.check().map_err(refuse)?;
        look_for_files(folder)?;
        let features = |entries| features(entries).map_err(refuse);
        let action = features(&config.output_features)?
            .into_iter()
            .find(|feature| feature.name == "action");
        Ok(Self {
            inputs: features(&config.input_features)?,
            action_size: action.and_then(|action| action.shape.first().copied()),
            longest_chunk: config.longest_chunk(),
            padded_state: config.max_state_dim,
            policy: config.r#type,
            path,
        })
    }

    /// Checks how many actions of a chunk a job executes.
    ///
    /// # Errors
    /// Refuses if chunks are shorter.
    pub fn check_chunk_length(&self, wanted: Option<usize>) -> Result<(), Refusal> {
        match (wanted, self.longest_chunk) {
            (Some(found), Some(most)) if found > most => {
                let wanted = "the actions that this checkpoint can give";
                let wanted = format!("expected at most {most}, {wanted}");
                Err(argument("action_chunk_length", &found.to_string(), &wanted))
            }
            _ => Ok(()),
        }
    }

    /// Returns the inputs of a kind.
    pub fn inputs_of(&self, kind: FeatureKind) -> impl Iterator<Item = &CheckpointFeature> {
        self.inputs.iter().filter(move |input| input.kind == kind)
    }
}

impl ConfigFile {
    /// Checks that the policy can be evaluated.
    fn check(&self) -> Result<(), String> {
        let kind = &self.r#type;
        if self.use_peft {
            return Err(
                "it is an adapter (`use_peft`): merge it into its base model (`merge_and_unload` \
                 of peft), and save that"
                    .to_owned(),
            );
        }
        match WITH_A_PAST.iter().find(|(name, _)| name == kind) {
            Some((_, past)) => Err(format!(
                "a chunk of `{kind}` depends on {past}, which is not kept for each episode"
            )),
            None => Ok(()),
        }
    }

    /// Returns the most actions of a chunk that can be executed.
    fn longest_chunk(&self) -> Option<usize> {
        if self.temporal_ensemble_coeff.is_some() {
            return Some(1);
        }
        let of_diffusion = || {
            let past = self.n_obs_steps?.saturating_sub(1);
            self.horizon?.checked_sub(past)
        };
        match self.r#type.as_str() {
            "diffusion" | "multi_task_dit" => of_diffusion(),
            _ => self.chunk_size,
        }
    }
}

/// Reads features.
fn features(entries: &serde_json::Map<String, Value>) -> Result<Vec<CheckpointFeature>, String> {
    let feature = |(name, entry): (&String, &Value)| {
        let mut feature = CheckpointFeature::deserialize(entry)
            .map_err(|err| format!("feature `{name}` has no type and shape: {err}"))?;
        feature.name.clone_from(name);
        Ok(feature)
    };
    entries.iter().map(feature).collect()
}

/// Looks for the processors of a checkpoint.
fn look_for_files(folder: &Path) -> Result<(), Refusal> {
    let mut paths = PROCESSORS.iter().map(|name| folder.join(name));
    let Some(missing) = paths.find(|path| !path.is_file()) else {
        return Ok(());
    };
    let reason = format!(
        "there is no such file; for a checkpoint of LeRobot before 0.4, `python -m \
         lerobot.processor.migrate_policy_normalization --pretrained-path {}` writes one that has \
         it",
        folder.display()
    );
    Err(of_file(&missing, reason))
}

#[cfg(test)]
mod tests;
