//! The modalities of a checkpoint: which parts of an observation it uses, and what its actions
//! mean.

use jobs::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::json::{Document, written};

/// Maximum number of steps of one modality; the longest released action chunk has 50.
const MOST_STEPS: usize = 4096;

/// The reference point of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Representation {
    /// Relative to the state at the time of the observation.
    Relative,
    /// Relative to the previous action; decoded like [`Representation::Absolute`], as in the
    /// reference.
    Delta,
    /// Absolute values.
    Absolute,
}

/// The layout of an end-effector pose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PoseFormat {
    /// A 4 × 4 matrix, row-major.
    Default,
    /// The position and the first two rows of the rotation matrix.
    XyzRot6d,
    /// The position and a rotation vector in radians.
    XyzRotvec,
}

/// What the values of an action key are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ActionKind {
    /// An end-effector pose.
    Eef,
    /// Plain numbers.
    NonEef,
}

/// The interpretation of one action key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionConfig {
    /// The reference point of the values.
    pub rep: Representation,
    /// What the values are.
    #[serde(rename = "type")]
    pub kind: ActionKind,
    /// Layout of the pose; plain numbers have one as well, which means nothing.
    pub format: PoseFormat,
    /// Key of the state to which the action is relative; the action's own key if `None`.
    pub state_key: Option<String>,
}

/// One modality of an embodiment: its keys and time steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModalityConfig {
    /// Time steps relative to now; their number is the modality's horizon.
    pub delta_indices: Vec<i64>,
    /// Keys, in the order of the network's columns; never empty.
    #[serde(rename = "modality_keys")]
    pub keys: Vec<String>,
    /// Keys whose values are encoded as sine and cosine.
    #[serde(rename = "sin_cos_embedding_keys")]
    pub sin_cos_keys: Option<Vec<String>>,
    /// Keys normalised by mean and standard deviation.
    #[serde(rename = "mean_std_embedding_keys")]
    pub mean_std_keys: Option<Vec<String>>,
    /// The interpretation of each key; `None` if all are absolute plain numbers.
    #[serde(rename = "action_configs")]
    pub actions: Option<Vec<ActionConfig>>,
}

/// The modalities of one embodiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modalities {
    /// The cameras.
    pub video: ModalityConfig,
    /// The state vectors.
    pub state: ModalityConfig,
    /// The action vectors.
    pub action: ModalityConfig,
    /// The instruction; only the first key counts, at one step.
    pub language: ModalityConfig,
}

impl Modalities {
    /// Checks what stands below `names` in a file.
    pub(super) fn check(&self, file: &Document, names: &[&str]) -> Result<(), Refusal> {
        for (part, modality) in [
            ("video", &self.video),
            ("state", &self.state),
            ("action", &self.action),
            ("language", &self.language),
        ] {
            let need = |name, holds, wanted: &str| {
                file.need(holds, &[names, &[part, name]].concat(), wanted)
            };
            let (keys, most) = (
                &modality.keys,
                if part == "language" { 1 } else { MOST_STEPS },
            );
            let is_twice = (1..keys.len()).any(|at| keys[..at].contains(&keys[at]));
            let wanted = "expected a list of at least one name, each once";
            need("modality_keys", !keys.is_empty() && !is_twice, wanted)?;
            let wanted = format!("expected a list of steps, at least 1 and at most {most}");
            let holds = (1..=most).contains(&modality.horizon());
            need("delta_indices", holds, &wanted)?;
            let wanted = format!("expected one entry for each of the {} keys", keys.len());
            let entries = modality.actions.as_ref().map_or(keys.len(), Vec::len);
            need("action_configs", entries == keys.len(), &wanted)?;
        }
        Ok(())
    }

    /// Returns the key of the instruction.
    pub fn language_key(&self) -> &str {
        &self.language.keys[0]
    }

    /// Returns the map that clients of a policy server receive, with the reference's order of keys.
    pub fn to_json(&self) -> Value {
        written(self, &[])
    }
}

impl ModalityConfig {
    /// Returns the number of steps.
    pub fn horizon(&self) -> usize {
        self.delta_indices.len()
    }

    pub(super) fn has_sin_cos(&self, key: &str) -> bool {
        contains(self.sin_cos_keys.as_ref(), key)
    }

    pub(super) fn has_mean_std(&self, key: &str) -> bool {
        contains(self.mean_std_keys.as_ref(), key)
    }
}

fn contains(names: Option<&Vec<String>>, key: &str) -> bool {
    names.is_some_and(|names| names.iter().any(|name| name == key))
}

impl ActionConfig {
    /// Returns the layout of the pose; `None` for plain numbers.
    pub(super) fn pose(&self) -> Option<PoseFormat> {
        (self.kind == ActionKind::Eef).then_some(self.format)
    }
}
