//! Assigns cameras and states of an environment to the inputs of a checkpoint: as the job says, and
//! otherwise by name where only one assignment is possible.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::policies::lerobot::{CheckpointFeature, FeatureKind, LerobotCheckpoint};
use crate::policies::{OBJECT, argument};
use crate::refusal::Refusal;
use crate::settings;
use crate::settings::kinds::OneOrMany;

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

    /// Assigns a camera of the environment to each picture of the checkpoint, or none to one that is
    /// left out.
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
        let inputs: Vec<_> = checkpoint.inputs_of(FeatureKind::Picture).collect();
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
        for input in &inputs {
            let name = short(&input.name);
            let by_name = cameras.iter().find(|camera| **camera == name);
            let camera = match (self.cameras.get(&input.name), by_name) {
                (Some(given), _) => given.0.as_deref(),
                (None, Some(camera)) => Some(*camera),
                (None, None) if name.starts_with(EMPTY_CAMERA) => None,
                (None, None) => {
                    open.push(input.name.as_str());
                    continue;
                }
            };
            found.insert(&input.name, camera);
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

    /// Assigns states of the environment, with their lengths, to each state of the checkpoint, where
    /// they are joined in order.
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
        check_inputs("states", self.states.keys(), &inputs)?;
        let listed: Vec<String> = states
            .iter()
            .map(|(name, length)| format!("{name} ({length})"))
            .collect();
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let mut mapped = Vec::new();
        let mut open = Vec::new();
        for input in inputs {
            let Some(names) = self.states_of(input, states) else {
                open.push(input.name.as_str());
                continue;
            };
            let mut length = 0;
            for name in &names {
                let state = states.iter().find(|(known, _)| known == name);
                let Some((_, found)) = state else {
                    return Err(unknown("states", &input.name, name, environment, &listed));
                };
                length += found;
            }
            check_length(input, &names, length, checkpoint.padded_state)?;
            mapped.push((input.name.clone(), names));
        }
        if open.is_empty() {
            return Ok(mapped);
        }
        Err(open_inputs("states", &open, environment, &listed))
    }

    /// Returns the states of an input: those of the job, or the one that has its name, or the only
    /// one that there is.
    fn states_of(
        &self,
        input: &CheckpointFeature,
        states: &[(String, usize)],
    ) -> Option<Vec<String>> {
        if let Some(given) = self.states.get(&input.name) {
            return Some(given.0.clone());
        }
        let usual = USUAL_NAMES.iter().find(|(name, _)| *name == input.name);
        let names = [Some(short(&input.name)), usual.map(|(_, name)| *name)];
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
    inputs: &[&CheckpointFeature],
) -> Result<(), Refusal> {
    let is_known = |name: &String| inputs.iter().any(|input| input.name == *name);
    let Some(name) = given.find(|name| !is_known(name)) else {
        return Ok(());
    };
    let known: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let known = match known.len() {
        0 => "the checkpoint has no such inputs".to_owned(),
        _ => format!("expected an input of the checkpoint: {}", known.join(", ")),
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

/// Checks the length of a state. lerobot pads the states of some policies, and then may say only the
/// padded length.
fn check_length(
    input: &CheckpointFeature,
    names: &[String],
    length: usize,
    padded: Option<usize>,
) -> Result<(), Refusal> {
    let wanted: usize = input.shape.iter().product();
    let is_padded = padded == Some(wanted) && length <= wanted;
    if length == wanted || is_padded {
        return Ok(());
    }
    Err(argument(
        &format!("mapping.states.{}", input.name),
        &format!("{} with {length} values", names.join(", ")),
        &format!("expected {wanted}, as the checkpoint reads"),
    ))
}
