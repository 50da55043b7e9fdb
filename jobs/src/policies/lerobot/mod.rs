//! What a LeRobot checkpoint says about itself in `config.json` (lerobot 0.6.1,
//! `configs/policies.py`): its type, its inputs and the length of its actions. lerobot reads the
//! same file again when it loads the checkpoint. Then, which cameras and states of an environment
//! fill its inputs: as the job says, and otherwise by name where only one assignment is possible.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::policies::{OBJECT, argument};
use crate::refusal::Refusal;
use crate::settings::kinds::OneOrMany;
use crate::{files, settings};

/// Maximum bytes of a `config.json`; lerobot's have a few thousand.
const LARGEST_CONFIG: u64 = 1 << 20;

/// Files beside `config.json` that lerobot writes since 0.4. A checkpoint without them has its
/// statistics among its weights.
const PROCESSORS: [&str; 2] = ["policy_preprocessor.json", "policy_postprocessor.json"];

/// Policies whose chunk depends on what they did before in the episode, and on what. lerobot keeps
/// that for one batch of environments that step together.
const WITH_A_PAST: [(&str, &str); 2] =
    [("tdmpc", "its last plan"), ("lingbot_va", "its last chunk")];

/// The description of a checkpoint: the fields of its `config.json` that are read here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LerobotCheckpoint {
    /// lerobot's name of the policy: `act`, `diffusion`, `smolvla` and so on.
    r#type: String,
    #[serde(default)]
    input_features: Map<String, Value>,
    #[serde(default)]
    output_features: Map<String, Value>,
    /// Both, read once the policy is known to be one that can be evaluated.
    #[serde(skip)]
    features: [BTreeMap<String, CheckpointFeature>; 2],
    #[serde(default)]
    use_peft: bool,
    chunk_size: Option<usize>,
    horizon: Option<usize>,
    n_obs_steps: Option<usize>,
    /// Length to which it pads states, if it does. A state of this length may be shorter.
    max_state_dim: Option<usize>,
    temporal_ensemble_coeff: Option<f64>,
}

/// An input or output of a checkpoint, which has it by its name, such as `observation.images.top`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "an object")]
pub struct CheckpointFeature {
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

impl LerobotCheckpoint {
    /// Reads the description of the checkpoint in `folder`, and looks for its other files.
    ///
    /// # Errors
    /// Refuses a file that is missing or cannot be read, and for a
    /// checkpoint that cannot be evaluated.
    pub fn read(folder: &Path) -> Result<Self, Refusal> {
        let path = folder.join("config.json");
        let refuse = |reason: String| Refusal::in_file(&path, reason);
        let text = files::read(&path, LARGEST_CONFIG)
            .map_err(|err| refuse(format!("{err}; a checkpoint of LeRobot has this file")))?;
        let mut checkpoint: Self = serde_json::from_slice(&text).map_err(|err| {
            refuse(format!(
                "this is no configuration of a LeRobot policy: {err}"
            ))
        })?;
        checkpoint.check().map_err(refuse)?;
        look_for_files(folder)?;
        let entries = [&checkpoint.input_features, &checkpoint.output_features];
        let [inputs, outputs] = entries.map(|entries| features(entries).map_err(refuse));
        checkpoint.features = [inputs?, outputs?];
        Ok(checkpoint)
    }

    /// Checks how many actions of a chunk a job executes.
    ///
    /// # Errors
    /// Refuses if chunks are shorter.
    pub fn check_chunk_length(&self, wanted: Option<usize>) -> Result<(), Refusal> {
        match (wanted, self.longest_chunk()) {
            (Some(found), Some(most)) if found > most => {
                let wanted = "the actions that this checkpoint can give";
                let wanted = format!("expected at most {most}, {wanted}");
                Err(argument("action_chunk_length", &found.to_string(), &wanted))
            }
            _ => Ok(()),
        }
    }

    /// Returns the inputs of a kind, by name.
    pub fn inputs_of(&self, kind: FeatureKind) -> impl Iterator<Item = (&str, &CheckpointFeature)> {
        let inputs = self.features[0].iter();
        let inputs = inputs.map(|(name, input)| (name.as_str(), input));
        inputs.filter(move |(_, input)| input.kind == kind)
    }

    /// Returns the number of components of an action, if the file says it.
    pub fn action_size(&self) -> Option<usize> {
        let action = self.features[1].get("action")?;
        action.shape.first().copied()
    }

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

    /// Returns the most actions of a chunk that can be executed, if that is known for this type of
    /// policy.
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

/// Reads features. A shape has a number of values that fits into `usize`.
fn features(entries: &Map<String, Value>) -> Result<BTreeMap<String, CheckpointFeature>, String> {
    let feature = |(name, entry): (&String, &Value)| {
        let wrong = |why: String| format!("feature `{name}` has no type and shape: {why}");
        let feature =
            CheckpointFeature::deserialize(entry).map_err(|err| wrong(err.to_string()))?;
        let product = |length: usize, size: &usize| length.checked_mul(*size);
        let length = feature.shape.iter().try_fold(1, product);
        length.ok_or_else(|| wrong("its shape is too large".to_owned()))?;
        Ok((name.clone(), feature))
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
    Err(Refusal::in_file(&missing, reason))
}

/// Prefixes of inputs in lerobot, before the name that a camera or a state has elsewhere.
const PREFIXES: [&str; 2] = ["observation.images.", "observation."];

/// Cameras that lerobot adds to a checkpoint and that have no picture (`empty_cameras`).
const EMPTY_CAMERA: &str = "empty_camera";

/// Names that gymnasium's environments give to lerobot's states (lerobot 0.6.1,
/// `envs/utils.py: preprocess_observation`).
const USUAL_NAMES: [(&str, &str); 2] = [
    ("observation.state", "agent_pos"),
    ("observation.environment_state", "environment_state"),
];

/// The setting `mapping` of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct FeatureMapping {
    /// Camera of each input.
    #[serde(default)]
    cameras: BTreeMap<String, GivenCamera>,
    /// States that are joined to each input.
    #[serde(default)]
    states: BTreeMap<String, OneOrMany>,
}

/// The camera of an input; `None` leaves the input out.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("wanted" = "the name of a camera, or null to leave the input out"))]
struct GivenCamera(Option<String>);

impl FeatureMapping {
    /// Reads the setting.
    ///
    /// # Errors
    /// Refuses a field that has another name or kind.
    pub fn read(mapping: &Map<String, Value>) -> Result<Self, Refusal> {
        let all: Self = settings::read(&format!("{OBJECT}.mapping"), mapping)?;
        match all.states.iter().find(|(_, names)| names.0.is_empty()) {
            Some((feature, _)) => {
                let wanted = "expected the name of a state, or a list of names to be joined";
                Err(argument(&format!("mapping.states.{feature}"), "[]", wanted))
            }
            None => Ok(all),
        }
    }

    /// Assigns a camera of the environment to each picture of the checkpoint, or none to one that
    /// is left out.
    ///
    /// # Errors
    /// Refuses names that do not exist, and for inputs whose camera
    /// is not certain.
    pub fn cameras(
        &self,
        checkpoint: &LerobotCheckpoint,
        environment: &str,
        cameras: &[&str],
    ) -> Result<Vec<(String, Option<String>)>, Refusal> {
        let inputs = checkpoint.inputs_of(FeatureKind::Picture);
        let inputs: Vec<&str> = inputs.map(|(name, _)| name).collect();
        check_inputs("cameras", self.cameras.keys(), &inputs)?;
        for (feature, camera) in &self.cameras {
            if let Some(camera) = &camera.0
                && !cameras.contains(&camera.as_str())
            {
                return Err(unknown("cameras", feature, camera, environment, cameras));
            }
        }
        let mut found: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        let mut open = Vec::new();
        for input in inputs {
            let name = short(input);
            let by_name = cameras.iter().find(|camera| **camera == name);
            let camera = match (self.cameras.get(input), by_name) {
                (Some(given), _) => given.0.as_deref(),
                (None, Some(camera)) => Some(*camera),
                (None, None) if name.starts_with(EMPTY_CAMERA) => None,
                (None, None) => {
                    open.push(input);
                    continue;
                }
            };
            found.insert(input, camera);
        }
        match (&open[..], cameras) {
            ([], _) => {}
            // One picture of the only camera: nothing else can be meant.
            ([feature], [camera]) if found.values().all(Option::is_none) => {
                found.insert(feature, Some(camera));
            }
            _ => return Err(open_inputs("cameras", &open, environment, cameras)),
        }
        let mapped = found.into_iter();
        let owned =
            |(input, camera): (&str, Option<&str>)| (input.to_owned(), camera.map(str::to_owned));
        Ok(mapped.map(owned).collect())
    }

    /// Assigns states of the environment, with their lengths, to each state of the checkpoint,
    /// where they are joined in order.
    ///
    /// # Errors
    /// Refuses names that do not exist, for states of another length
    /// than the checkpoint reads, and for inputs whose states are not certain.
    pub fn states(
        &self,
        checkpoint: &LerobotCheckpoint,
        environment: &str,
        states: &[(String, usize)],
    ) -> Result<Vec<(String, Vec<String>)>, Refusal> {
        let inputs: Vec<_> = checkpoint.inputs_of(FeatureKind::State).collect();
        let names: Vec<&str> = inputs.iter().map(|(name, _)| *name).collect();
        check_inputs("states", self.states.keys(), &names)?;
        let listed: Vec<String> = states
            .iter()
            .map(|(name, length)| format!("{name} ({length})"))
            .collect();
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let mut mapped = Vec::new();
        let mut open = Vec::new();
        for (input, feature) in inputs {
            let Some(names) = self.states_of(input, states) else {
                open.push(input);
                continue;
            };
            let mut length = 0;
            for name in &names {
                let state = states.iter().find(|(known, _)| known == name);
                let Some((_, found)) = state else {
                    return Err(unknown("states", input, name, environment, &listed));
                };
                length += found;
            }
            check_length((input, feature), &names, length, checkpoint.max_state_dim)?;
            mapped.push((input.to_owned(), names));
        }
        if open.is_empty() {
            return Ok(mapped);
        }
        Err(open_inputs("states", &open, environment, &listed))
    }

    /// Returns the states of an input: those of the job, or the one that has its name, or the only
    /// one that there is.
    fn states_of(&self, input: &str, states: &[(String, usize)]) -> Option<Vec<String>> {
        if let Some(given) = self.states.get(input) {
            return Some(given.0.clone());
        }
        let usual = USUAL_NAMES.iter().find(|(name, _)| *name == input);
        let names = [Some(short(input)), usual.map(|(_, name)| *name)];
        let by_name = states
            .iter()
            .find(|(name, _)| names.contains(&Some(name.as_str())));
        let only = match states {
            [only] => Some(only),
            _ => None,
        };
        by_name.or(only).map(|(name, _)| vec![name.clone()])
    }
}

/// Returns the name of an input without lerobot's prefix.
fn short(name: &str) -> &str {
    let without = |prefix: &&str| name.strip_prefix(*prefix);
    PREFIXES.iter().find_map(without).unwrap_or(name)
}

/// Checks that the inputs that a job names exist.
fn check_inputs<'a>(
    part: &str,
    mut given: impl Iterator<Item = &'a String>,
    inputs: &[&str],
) -> Result<(), Refusal> {
    let Some(name) = given.find(|name| !inputs.contains(&name.as_str())) else {
        return Ok(());
    };
    let known = match inputs {
        [] => "the checkpoint has no such inputs".to_owned(),
        _ => format!("expected an input of the checkpoint: {}", inputs.join(", ")),
    };
    let field = format!("mapping.{part}");
    Err(argument(&field, &format!("for `{name}`"), &known))
}

fn unknown(part: &str, feature: &str, found: &str, environment: &str, known: &[&str]) -> Refusal {
    let field = format!("mapping.{part}.{feature}");
    let wanted = format!("but environment `{environment}` has {}", list(known));
    argument(&field, &format!("`{found}`"), &wanted)
}

fn open_inputs(part: &str, open: &[&str], environment: &str, known: &[&str]) -> Refusal {
    let field = format!("mapping.{part}");
    let wanted = format!(
        "expected the {} for each; environment `{environment}` has {}",
        part.trim_end_matches('s'),
        list(known)
    );
    let found = format!("without `{}`", open.join("`, `"));
    argument(&field, &found, &wanted)
}

fn list(known: &[&str]) -> String {
    match known {
        [] => "none".to_owned(),
        known => known.join(", "),
    }
}

/// Checks the length of a state. lerobot pads the states of some policies, and then may say only
/// the padded length.
fn check_length(
    (input, feature): (&str, &CheckpointFeature),
    names: &[String],
    length: usize,
    padded: Option<usize>,
) -> Result<(), Refusal> {
    let wanted: usize = feature.shape.iter().product();
    let is_padded = padded == Some(wanted) && length <= wanted;
    if length == wanted || is_padded {
        return Ok(());
    }
    Err(argument(
        &format!("mapping.states.{input}"),
        &format!("{} with {length} values", names.join(", ")),
        &format!("expected {wanted}, as the checkpoint reads"),
    ))
}

#[cfg(test)]
mod tests;
