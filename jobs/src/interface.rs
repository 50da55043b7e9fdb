//! What an environment or a robot shows to a policy, and what it takes; also as the file of
//! `--interface`, and as the process of a simulator in Python tells it.
//!
//! ```text
//! {"cameras": {"front": [224, 224]},               height, width
//!  "states": {"joint_position": 7},
//!  "actions": {"names": ["dx", …], "low": [-1, …], "high": [1, …]},     null: no bound
//!  "control_hz": 20, "max_episode_steps": 200, "language": "", "name": "robot"}
//! ```
//! `rrun serve --print-interface --environment NAME` prints that of an environment.

use std::path::Path;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::refusal::Refusal;
use crate::settings;
use crate::tree::object;

/// What errors call the contents of the file.
const PLACE: &str = "interface";

/// Maximum edge of a robot's images in pixels, that of `--max-picture`.
const LONGEST_EDGE: u32 = 32_768;

/// Maximum length of a robot's state vectors, that of `rrun serve`, and of its action vector.
const LONGEST_VECTOR: usize = 4096;

/// Default of `control_hz`, as in the built-in environments.
const CONTROL_HZ: u32 = 20;

/// Default of `max_episode_steps`; a robot has no time limit of its own.
const MAX_EPISODE_STEPS: u32 = 1000;

/// Name of a robot whose file has no `name`.
const NAME: &str = "robot";

/// The file. Cameras and states keep their order.
#[derive(Deserialize, JsonSchema)]
struct Written {
    name: Option<String>,
    #[serde(default)]
    #[schemars(extend("additionalProperties" = size()))]
    cameras: Map<String, Value>,
    #[serde(default)]
    #[schemars(extend("additionalProperties" = length()))]
    states: Map<String, Value>,
    actions: WrittenActions,
    #[schemars(range(min = 1, max = u32::MAX))]
    control_hz: Option<u32>,
    #[schemars(range(min = 1, max = u32::MAX))]
    max_episode_steps: Option<u32>,
    #[serde(default)]
    language: String,
}

#[derive(Deserialize, JsonSchema)]
struct WrittenActions {
    #[schemars(length(min = 1), extend("wanted" = "a list of at least one name"))]
    names: Vec<String>,
    low: Option<Vec<Value>>,
    high: Option<Vec<Value>>,
    grid: Option<Vec<Value>>,
}

/// The schema of height and width of an image.
fn size() -> Value {
    let edge = json!({"type": "integer", "minimum": 1, "maximum": u32::MAX});
    json!({
        "type": "array", "minItems": 2, "maxItems": 2, "items": edge,
        "wanted": "[height, width] in pixels, whole numbers above 0",
    })
}

fn length() -> Value {
    json!({"type": "integer", "minimum": 1})
}

/// A camera, and the size of its images in pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraSpec {
    /// Its name, the key of its image in an observation.
    pub name: String,
    /// Height of its images.
    pub height: u32,
    /// Width of its images.
    pub width: u32,
}

/// The action vector: one name and one range for each number.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionSpec {
    /// Name of each number.
    pub names: Vec<String>,
    /// Lowest accepted value of each number; negative infinity without a bound.
    pub low: Vec<f32>,
    /// Highest accepted value of each number; infinity without a bound.
    pub high: Vec<f32>,
    /// Step between neighbouring values of each number, counted from the lowest, 0 for a continuous
    /// one; empty if all are continuous.
    pub grid: Vec<f32>,
}

impl ActionSpec {
    /// Returns the step between neighbouring values of a number; see [`ActionSpec::grid`].
    pub fn grid_of(&self, number: usize) -> f32 {
        self.grid.get(number).copied().unwrap_or(0.0)
    }
}

/// What an environment or a robot shows to a policy, and what it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Name under which the environment was created, or that of the robot.
    pub name: String,
    /// Keys and lengths of the state vectors in an observation.
    pub state: Vec<(String, usize)>,
    /// The cameras, in the order in which a video shows them from left to right.
    pub cameras: Vec<CameraSpec>,
    /// The action vector.
    pub action: ActionSpec,
    /// Control frequency in steps per second, also the frame rate of videos.
    pub control_hz: u32,
    /// Maximum number of steps, after which an episode is truncated.
    pub max_episode_steps: u32,
    /// Task instruction, unless the job or the client sets another.
    pub language: String,
}

impl Interface {
    /// Reads a file of `--interface`.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let place = format!("--interface `{}`", path.display());
        let text = files::read(path, MAX_DOCUMENT_BYTES).map_err(|err| Refusal::at(&place, err))?;
        let value = serde_json::from_slice(&text).map_err(|err| Refusal::at(&place, err))?;
        Self::of_robot(&value).map_err(|refusal| refusal.inside(&place))
    }

    fn of_robot(value: &Value) -> Result<Self, Refusal> {
        let interface = Self::parse(value)?;
        interface.check_size(LONGEST_EDGE, LONGEST_VECTOR)?;
        Ok(interface)
    }

    /// Checks that no image has a longer edge, and no vector more numbers.
    ///
    /// # Errors
    /// Refuses the first one that has.
    pub fn check_size(&self, edge: u32, vector: usize) -> Result<(), Refusal> {
        let is_large = |camera: &&CameraSpec| camera.height.max(camera.width) > edge;
        if let Some(camera) = self.cameras.iter().find(is_large) {
            let CameraSpec {
                name,
                height,
                width,
            } = camera;
            let reason = format!("found {height}x{width} pixels, expected at most {edge} per edge");
            return Err(Refusal::at(format_args!("{PLACE}.cameras.{name}"), reason));
        }
        let states = self.state.iter();
        let mut vectors = states.map(|(name, length)| (format!("states.{name}"), *length));
        let action = ("actions.names".to_owned(), self.action.names.len());
        let is_long = |(_, length): &(String, usize)| *length > vector;
        let long = vectors.find(is_long).or(Some(action).filter(is_long));
        long.map_or(Ok(()), |(field, length)| {
            let reason = format!("found {length} numbers, expected at most {vector}");
            Err(Refusal::at(format_args!("{PLACE}.{field}"), reason))
        })
    }

    /// Converts the parsed JSON of a file.
    ///
    /// # Errors
    /// Refuses the first wrong field.
    pub fn parse(value: &Value) -> Result<Self, Refusal> {
        let given: Written = settings::read(PLACE, object(PLACE, value)?)?;
        let actions = given.actions;
        let size = actions.names.len();
        let low = bounds("low", actions.low, size, f32::NEG_INFINITY)?;
        let high = bounds("high", actions.high, size, f32::INFINITY)?;
        if let Some(index) = (0..size).find(|index| low[*index] > high[*index]) {
            let reason = format!(
                "entry {index} is {}, and that of high is {}, expected no more than that",
                low[index], high[index]
            );
            return Err(Refusal::at(format_args!("{PLACE}.actions.low"), reason));
        }
        let grid = match actions.grid {
            Some(grid) => bounds("grid", Some(grid), size, 0.0)?,
            None => Vec::new(),
        };
        let is_wrong = |step: &&f32| !(0.0..f32::INFINITY).contains(*step);
        if let Some(step) = grid.iter().find(is_wrong) {
            let reason = format!("one entry is {step}, expected finite numbers from 0");
            return Err(Refusal::at(format_args!("{PLACE}.actions.grid"), reason));
        }
        let camera = |(name, [height, width]): (String, [u32; 2])| CameraSpec {
            name,
            height,
            width,
        };
        Ok(Self {
            name: given.name.unwrap_or(NAME.to_owned()),
            cameras: each(given.cameras).map(camera).collect(),
            state: each(given.states).collect(),
            action: ActionSpec {
                names: actions.names,
                low,
                high,
                grid,
            },
            control_hz: given.control_hz.unwrap_or(CONTROL_HZ),
            max_episode_steps: given.max_episode_steps.unwrap_or(MAX_EPISODE_STEPS),
            language: given.language,
        })
    }

    /// Returns the contents of the file, from which [`Interface::parse`] makes the same
    /// interface.
    pub fn to_json(&self) -> Value {
        let cameras = self
            .cameras
            .iter()
            .map(|camera| (camera.name.clone(), json!([camera.height, camera.width])));
        let states = self
            .state
            .iter()
            .map(|(name, length)| (name.clone(), json!(length)));
        let mut actions = json!({
            "names": self.action.names,
            "low": finite(&self.action.low),
            "high": finite(&self.action.high),
        });
        if !self.action.grid.is_empty() {
            actions["grid"] = finite(&self.action.grid);
        }
        json!({
            "name": self.name,
            "cameras": Map::from_iter(cameras),
            "states": Map::from_iter(states),
            "actions": actions,
            "control_hz": self.control_hz,
            "max_episode_steps": self.max_episode_steps,
            "language": self.language,
        })
    }

    /// Returns the camera of this name, if there is one.
    pub fn camera(&self, name: &str) -> Option<&CameraSpec> {
        self.cameras.iter().find(|camera| camera.name == name)
    }

    /// Returns the number of values of a state, if there is one of this name.
    pub fn length(&self, state: &str) -> Option<usize> {
        let found = self.state.iter().find(|(name, _)| name == state);
        found.map(|(_, length)| *length)
    }
}

impl<'de> Deserialize<'de> for Interface {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&Value::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Returns numbers as JSON, with null for those that are infinite.
fn finite(values: &[f32]) -> Value {
    // The shortest decimal of a float32, not that of the same number as a float64.
    let number = |value: &f32| serde_json::from_str(&value.to_string()).unwrap_or(Value::Null);
    values.iter().map(number).collect()
}

/// Returns the entries of a map whose values were found to fit.
fn each<T: DeserializeOwned>(map: Map<String, Value>) -> impl Iterator<Item = (String, T)> {
    map.into_iter()
        .filter_map(|(name, value)| Some((name, serde_json::from_value(value).ok()?)))
}

/// Returns one number for each name of an action; a null becomes `missing`.
fn bounds(
    field: &str,
    given: Option<Vec<Value>>,
    size: usize,
    missing: f32,
) -> Result<Vec<f32>, Refusal> {
    let Some(given) = given else {
        return Ok(vec![missing; size]);
    };
    let bound = |bound: &Value| match bound {
        Value::Null => Some(missing),
        bound => Some(bound.as_f64()? as f32),
    };
    let bounds: Option<Vec<f32>> = given.iter().map(bound).collect();
    bounds.filter(|bounds| bounds.len() == size).ok_or_else(|| {
        let wanted = format!("expected a list of {size} numbers, one for each of `names`");
        Refusal::found(
            format_args!("{PLACE}.actions.{field}"),
            &given.into(),
            wanted,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns in what an interface differs from that of an arm, or why its file is refused.
    #[test]
    fn an_interface_is_written_as_it_was_read_or_its_wrong_field_is_named() {
        let arm = json!({
            "name": "arm",
            "cameras": {"front": [480, 640]},
            "states": {"joint_position": 7},
            "actions": {"names": ["x", "gripper"], "low": [-0.1, null], "high": [0.1, 1]},
            "control_hz": 15,
            "max_episode_steps": 300,
            "language": "pick it up",
        });
        assert_eq!(Interface::parse(&arm).unwrap().to_json(), arm);
        rig::cases::check("src/interface.txt", |given| {
            match Interface::of_robot(&rig::cases::changed(&arm, given)) {
                Ok(interface) => rig::cases::changes(&arm, &interface.to_json()),
                Err(refusal) => refusal.to_string(),
            }
        });
    }
}
