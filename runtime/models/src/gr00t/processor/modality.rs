//! The modalities of a checkpoint: which parts of an observation it uses, and what its actions
//! mean.

use jobs::refusal::Refusal;
use serde_json::{Value, json};

use crate::gr00t::processor::field::Field;

/// Maximum number of steps of one modality; the longest released action chunk has 50.
const MOST_STEPS: usize = 4096;

/// The reference point of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoseFormat {
    /// A 4 × 4 matrix, row-major.
    Default,
    /// The position and the first two rows of the rotation matrix.
    XyzRot6d,
    /// The position and a rotation vector in radians.
    XyzRotvec,
}

/// The interpretation of one action key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionConfig {
    /// The reference point of the values.
    pub rep: Representation,
    /// Layout of the pose if the key is an end-effector pose; `None` for plain numbers.
    pub pose: Option<PoseFormat>,
    /// Layout as written in the file, which plain numbers have as well.
    pub format: PoseFormat,
    /// Key of the state to which the action is relative; the action's own key if `None`.
    pub state_key: Option<String>,
}

/// One modality of an embodiment: its keys and time steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModalityConfig {
    /// Time steps relative to now; their number is the modality's horizon.
    pub delta_indices: Vec<i64>,
    /// Keys, in the order of the network's columns; never empty.
    pub keys: Vec<String>,
    /// Keys whose values are encoded as sine and cosine.
    pub sin_cos_keys: Option<Vec<String>>,
    /// Keys normalised by mean and standard deviation.
    pub mean_std_keys: Option<Vec<String>>,
    /// The interpretation of each key; `None` if all are absolute plain numbers.
    pub actions: Option<Vec<ActionConfig>>,
}

/// The modalities of one embodiment.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub(super) fn read(field: &Field) -> Result<Self, Refusal> {
        let part = |name: &str| ModalityConfig::read(&field.get(name)?);
        let language = field.get("language")?;
        let modalities = Self {
            video: part("video")?,
            state: part("state")?,
            action: part("action")?,
            language: part("language")?,
        };
        if modalities.language.delta_indices.len() != 1 {
            return Err(language
                .get("delta_indices")?
                .refuse("expected a list of one step"));
        }
        Ok(modalities)
    }

    /// Returns the key of the instruction.
    pub fn language_key(&self) -> &str {
        &self.language.keys[0]
    }

    /// Returns the map that clients of a policy server receive, with the reference's order of keys.
    pub fn to_json(&self) -> Value {
        json!({
            "video": self.video.to_json(),
            "state": self.state.to_json(),
            "action": self.action.to_json(),
            "language": self.language.to_json(),
        })
    }
}

impl ModalityConfig {
    fn read(field: &Field) -> Result<Self, Refusal> {
        let keys_field = field.get("modality_keys")?;
        let keys = keys_field.texts()?;
        if keys.is_empty() || (1..keys.len()).any(|index| keys[..index].contains(&keys[index])) {
            return Err(keys_field.refuse("expected a list of at least one name, each once"));
        }
        let steps = field.get("delta_indices")?;
        let delta_indices = steps
            .items()?
            .iter()
            .map(Field::integer)
            .collect::<Result<Vec<_>, _>>()?;
        if delta_indices.is_empty() || delta_indices.len() > MOST_STEPS {
            return Err(steps.refuse(&format!("expected a list of 1 to {MOST_STEPS} steps")));
        }
        Ok(Self {
            delta_indices,
            actions: read_actions(&field.get("action_configs")?, keys.len())?,
            keys,
            sin_cos_keys: field
                .get("sin_cos_embedding_keys")?
                .given()
                .map(|names| names.texts())
                .transpose()?,
            mean_std_keys: field
                .get("mean_std_embedding_keys")?
                .given()
                .map(|names| names.texts())
                .transpose()?,
        })
    }

    /// Returns the number of steps.
    pub fn horizon(&self) -> usize {
        self.delta_indices.len()
    }

    pub(super) fn has_sin_cos(&self, key: &str) -> bool {
        self.sin_cos_keys
            .as_ref()
            .is_some_and(|names| names.iter().any(|name| name == key))
    }

    pub(super) fn has_mean_std(&self, key: &str) -> bool {
        self.mean_std_keys
            .as_ref()
            .is_some_and(|names| names.iter().any(|name| name == key))
    }

    fn to_json(&self) -> Value {
        let actions = self.actions.as_ref().map(|actions| {
            actions
                .iter()
                .map(ActionConfig::to_json)
                .collect::<Vec<_>>()
        });
        json!({
            "delta_indices": self.delta_indices,
            "modality_keys": self.keys,
            "sin_cos_embedding_keys": self.sin_cos_keys,
            "mean_std_embedding_keys": self.mean_std_keys,
            "action_configs": actions,
        })
    }
}

fn read_actions(field: &Field, keys: usize) -> Result<Option<Vec<ActionConfig>>, Refusal> {
    let Some(list) = field.clone().given() else {
        return Ok(None);
    };
    let actions = list
        .items()?
        .iter()
        .map(ActionConfig::read)
        .collect::<Result<Vec<_>, _>>()?;
    if actions.len() != keys {
        let wanted = format!(
            "expected one entry for each of the {keys} keys, found {}",
            actions.len()
        );
        return Err(field.refuse(&wanted));
    }
    Ok(Some(actions))
}

impl ActionConfig {
    fn read(field: &Field) -> Result<Self, Refusal> {
        let rep = field.get("rep")?;
        let rep = match rep.text()? {
            "RELATIVE" => Representation::Relative,
            "DELTA" => Representation::Delta,
            "ABSOLUTE" => Representation::Absolute,
            _ => return Err(rep.refuse("expected RELATIVE, DELTA or ABSOLUTE")),
        };
        let layout = field.get("format")?;
        let format = match layout.text()? {
            "DEFAULT" => PoseFormat::Default,
            "XYZ_ROT6D" => PoseFormat::XyzRot6d,
            "XYZ_ROTVEC" => PoseFormat::XyzRotvec,
            _ => return Err(layout.refuse("expected DEFAULT, XYZ_ROT6D or XYZ_ROTVEC")),
        };
        let kind = field.get("type")?;
        let pose = match kind.text()? {
            "EEF" => Some(format),
            "NON_EEF" => None,
            _ => return Err(kind.refuse("expected EEF or NON_EEF")),
        };
        let state_key = field
            .get("state_key")?
            .given()
            .map(|key| key.text().map(str::to_owned))
            .transpose()?;
        Ok(Self {
            rep,
            pose,
            format,
            state_key,
        })
    }

    fn to_json(&self) -> Value {
        let rep = match self.rep {
            Representation::Relative => "RELATIVE",
            Representation::Delta => "DELTA",
            Representation::Absolute => "ABSOLUTE",
        };
        let format = match self.format {
            PoseFormat::Default => "DEFAULT",
            PoseFormat::XyzRot6d => "XYZ_ROT6D",
            PoseFormat::XyzRotvec => "XYZ_ROTVEC",
        };
        let kind = if self.pose.is_some() {
            "EEF"
        } else {
            "NON_EEF"
        };
        json!({"rep": rep, "type": kind, "format": format, "state_key": self.state_key})
    }
}
