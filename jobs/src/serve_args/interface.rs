//! What a robot shows to a policy, and what it takes: the file of `--interface`.
//!
//! ```text
//! {"cameras": {"front": [224, 224]},               height, width
//!  "states": {"joint_position": 7},
//!  "actions": {"names": ["dx", …], "low": [-1, …], "high": [1, …]},     null: no bound
//!  "control_hz": 20, "max_episode_steps": 200, "language": "", "name": "robot"}
//! ```
//! `rrun serve --print-interface --environment NAME` prints that of an environment.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::fields::{FieldError, FileFields};
use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::refusal::Refusal;

/// Maximum edge of a camera image in pixels, that of `--max-picture`.
const LONGEST_EDGE: u64 = 32_768;

/// Maximum length of a state vector and of the action vector.
const LONGEST_VECTOR: u64 = 4096;

/// Default of `control_hz`, as in the built-in environments.
const CONTROL_HZ: u64 = 20;

/// Default of `max_episode_steps`; a robot has no time limit of its own.
const MAX_EPISODE_STEPS: u64 = 1000;

/// Name of a robot whose file has no `name`.
const NAME: &str = "robot";

/// A camera of a robot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RobotCamera {
    /// Name of the camera.
    pub name: String,
    /// Height of its images in pixels.
    pub height: u32,
    /// Width of its images in pixels.
    pub width: u32,
}

/// What a robot shows to a policy, and what it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct RobotInterface {
    /// Name of the robot or environment, for messages.
    pub name: String,
    /// The cameras, in the order in which policies see them.
    pub cameras: Vec<RobotCamera>,
    /// State vectors and their lengths.
    pub states: Vec<(String, usize)>,
    /// Name of each number of the action vector.
    pub action_names: Vec<String>,
    /// Lowest value of each number; negative infinity without a bound.
    pub low: Vec<f32>,
    /// Highest value of each number; infinity without a bound.
    pub high: Vec<f32>,
    /// Step between neighbouring values of each number, 0 for a continuous one; empty if all are
    /// continuous.
    pub grid: Vec<f32>,
    /// Control steps per second.
    pub control_hz: u32,
    /// Maximum number of steps of an episode.
    pub max_episode_steps: u32,
    /// The instruction for clients that send none.
    pub language: String,
}

impl RobotInterface {
    /// Reads a file of `--interface`.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let place = format!("--interface `{}`", path.display());
        let text = files::read(path, MAX_DOCUMENT_BYTES).map_err(|err| Refusal::at(&place, err))?;
        let value = serde_json::from_slice(&text).map_err(|err| {
            let (line, column) = (err.line(), err.column());
            Refusal::at(format_args!("{place} line {line} column {column}"), err)
        })?;
        Self::parse(&value).map_err(|refusal| Refusal::at(&place, refusal))
    }

    /// Converts the parsed JSON of a file.
    ///
    /// # Errors
    /// Returns [`FieldError`] for the first wrong field.
    pub fn parse(value: &Value) -> Result<Self, FieldError> {
        let mut fields = FileFields::new("interface", value)?;
        let cameras = cameras(&mut fields)?;
        let states = states(&mut fields)?;
        let mut actions = FileFields::new("interface field actions", fields.require("actions")?)?;
        let action_names = names(&mut actions)?;
        let size = action_names.len();
        let low = bounds(&mut actions, "low", size, f32::NEG_INFINITY)?;
        let high = bounds(&mut actions, "high", size, f32::INFINITY)?;
        if let Some(index) = (0..size).find(|index| low[*index] > high[*index]) {
            let reason = format!(
                "entry {index} is {}, and that of high is {}, expected no more than that",
                low[index], high[index]
            );
            return Err(actions.refuse("low", &reason));
        }
        let grid = match actions.has("grid") {
            true => bounds(&mut actions, "grid", size, 0.0)?,
            false => Vec::new(),
        };
        actions.finish(&["names", "low", "high", "grid"])?;
        let limit = u64::from(u32::MAX);
        let control_hz = fields.at_most("control_hz", limit)?.unwrap_or(CONTROL_HZ);
        let max_steps = fields.at_most("max_episode_steps", limit)?;
        let interface = Self {
            name: fields.optional_string("name")?.unwrap_or(NAME.to_owned()),
            cameras,
            states,
            action_names,
            low,
            high,
            grid,
            control_hz: whole(control_hz),
            max_episode_steps: whole(max_steps.unwrap_or(MAX_EPISODE_STEPS)),
            language: fields.optional_string("language")?.unwrap_or_default(),
        };
        fields.finish(&[
            "name",
            "cameras",
            "states",
            "actions",
            "control_hz",
            "max_episode_steps",
            "language",
        ])?;
        Ok(interface)
    }

    /// Returns the contents of the file, from which [`RobotInterface::parse`] makes the same
    /// interface.
    pub fn to_json(&self) -> Value {
        let cameras = self
            .cameras
            .iter()
            .map(|camera| (camera.name.clone(), json!([camera.height, camera.width])));
        let states = self
            .states
            .iter()
            .map(|(name, length)| (name.clone(), json!(length)));
        let mut actions = json!({
            "names": self.action_names,
            "low": finite(&self.low),
            "high": finite(&self.high),
        });
        if !self.grid.is_empty() {
            actions["grid"] = finite(&self.grid);
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
}

/// Returns numbers as JSON, with null for those that are infinite.
fn finite(values: &[f32]) -> Value {
    // The shortest decimal of a float32, not that of the same number as a float64.
    let number = |value: &f32| serde_json::from_str(&value.to_string()).unwrap_or(Value::Null);
    values.iter().map(number).collect()
}

/// Converts a number that was found to fit.
fn whole(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn cameras(fields: &mut FileFields) -> Result<Vec<RobotCamera>, FieldError> {
    let object = fields.object("cameras")?.unwrap_or_default();
    let edge = |value: &Value| {
        value
            .as_u64()
            .filter(|edge| (1..=LONGEST_EDGE).contains(edge))
    };
    object
        .iter()
        .map(|(name, size)| {
            let list = size.as_array().map_or(&[][..], Vec::as_slice);
            let edges: Vec<Option<u64>> = list.iter().map(edge).collect();
            match edges[..] {
                [Some(height), Some(width)] => Ok(RobotCamera {
                    name: name.clone(),
                    height: whole(height),
                    width: whole(width),
                }),
                _ => {
                    let reason = format!(
                        "{size}, expected [height, width] in pixels, each from 1 to {LONGEST_EDGE}"
                    );
                    Err(fields.refuse(&format!("cameras.{name}"), &reason))
                }
            }
        })
        .collect::<Result<_, _>>()
}

fn states(fields: &mut FileFields) -> Result<Vec<(String, usize)>, FieldError> {
    let object = fields.object("states")?.unwrap_or_default();
    let length = |(name, length): (&String, &Value)| match length.as_u64() {
        Some(length) if (1..=LONGEST_VECTOR).contains(&length) => {
            Ok((name.clone(), whole(length) as usize))
        }
        _ => {
            let reason = format!("{length}, expected a whole number from 1 to {LONGEST_VECTOR}");
            Err(fields.refuse(&format!("states.{name}"), &reason))
        }
    };
    object.iter().map(length).collect()
}

fn names(actions: &mut FileFields) -> Result<Vec<String>, FieldError> {
    let value = actions.require("names")?;
    let names: Option<Vec<String>> = value.as_array().and_then(|names| {
        let text = |name: &Value| name.as_str().map(str::to_owned);
        names.iter().map(text).collect()
    });
    let most = usize::try_from(LONGEST_VECTOR).unwrap_or(usize::MAX);
    match names {
        Some(names) if (1..=most).contains(&names.len()) => Ok(names),
        _ => {
            let wanted = format!("expected a list of 1 to {LONGEST_VECTOR} names");
            Err(actions.wrong("names", Some(value), &wanted))
        }
    }
}

/// Returns one number for each name of an action; a null becomes `missing`.
fn bounds(
    actions: &mut FileFields,
    field: &str,
    size: usize,
    missing: f32,
) -> Result<Vec<f32>, FieldError> {
    let Some(value) = actions.take(field) else {
        return Ok(vec![missing; size]);
    };
    let bound = |bound: &Value| match bound {
        Value::Null => Some(missing),
        bound => Some(bound.as_f64()? as f32),
    };
    let list = value.as_array().map_or(&[][..], Vec::as_slice);
    let bounds: Option<Vec<f32>> = list.iter().map(bound).collect();
    bounds.filter(|bounds| bounds.len() == size).ok_or_else(|| {
        let wanted = format!("expected a list of {size} numbers, one for each of `names`");
        actions.wrong(field, Some(value), &wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(value: &Value) -> String {
        RobotInterface::parse(value).unwrap_err().to_string()
    }

    fn arm() -> Value {
        json!({
            "name": "arm",
            "cameras": {"front": [480, 640]},
            "states": {"joint_position": 7},
            "actions": {"names": ["x", "gripper"], "low": [-0.1, null], "high": [0.1, 1]},
            "control_hz": 15,
            "max_episode_steps": 300,
            "language": "pick it up",
        })
    }

    #[test]
    fn an_interface_is_written_as_it_was_read() {
        let interface = RobotInterface::parse(&arm()).unwrap();
        assert_eq!(interface.low, [-0.1, f32::NEG_INFINITY]);
        assert_eq!(interface.cameras[0].height, 480);
        assert_eq!(interface.to_json(), arm());
    }

    #[test]
    fn actions_alone_are_an_interface() {
        let interface = RobotInterface::parse(&json!({"actions": {"names": ["x"]}})).unwrap();
        assert_eq!(interface.name.as_str(), "robot");
        assert_eq!(interface.control_hz, 20);
        assert_eq!(interface.high, [f32::INFINITY]);
    }

    #[test]
    fn a_wrong_field_is_named() {
        let with = |path: &str, value: Value| {
            let mut arm = arm();
            *arm.pointer_mut(path).unwrap() = value;
            refusal(&arm)
        };
        assert_eq!(
            with("/cameras/front", json!([0, 640])),
            "interface field cameras.front: [0,640], expected [height, width] in pixels, each \
             from 1 to 32768"
        );
        assert_eq!(
            with("/states/joint_position", json!("7")),
            "interface field states.joint_position: \"7\", expected a whole number from 1 to 4096"
        );
        assert_eq!(
            with("/actions/low", json!([1])),
            "interface field actions field low: found a list of 1, expected a list of 2 numbers, \
             one for each of `names`"
        );
        assert!(with("/actions/low", json!([0.2, 0])).contains("entry 0 is 0.2"));
        assert!(refusal(&json!({})).ends_with("field actions: it is missing"));
        let mut arm = arm();
        arm["camera"] = json!({});
        assert!(refusal(&arm).ends_with("unknown field `camera`; did you mean `cameras`?"));
    }
}
