//! The description that a child sends of its environment. It is validated, because it sizes memory
//! and reaches policies and files.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::env::{ActionSpec, CameraSpec, Discrete, EnvSpec};
use jobs::interface::Interface;

/// Maximum height and width of an image in pixels.
const LARGEST_SIDE: u32 = 8192;
/// Maximum length of a state or action vector.
const LONGEST_VECTOR: usize = 1 << 20;
/// Maximum number of cameras, and of state vectors.
const MOST_NAMES: usize = 512;
/// Maximum bytes of a name, which becomes part of a file name.
const LONGEST_NAME: usize = 128;
/// Maximum number of versions that are noted, and bytes of a name or version.
const MOST_VERSIONS: usize = 64;
const LONGEST_VERSION: usize = 100;
/// Maximum control frequency in steps per second: ten times that of the fastest controllers. It is
/// also the frame rate of videos.
const FASTEST: u32 = 10_000;

/// The description that a child sends of its environment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Hello {
    /// Names and lengths of the state vectors.
    pub state: Vec<(String, usize)>,
    /// Name, height and width of each camera.
    pub cameras: Vec<(String, u32, u32)>,
    /// The action vector.
    #[serde(deserialize_with = "action")]
    pub action: ActionSpec,
    /// The discrete action space, if the environment has one `Discrete`.
    #[serde(default)]
    pub discrete: Option<Discrete>,
    /// Control frequency in steps per second.
    pub control_hz: u32,
    /// True if neither the job nor the environment says the control frequency.
    #[serde(default)]
    pub is_control_hz_assumed: bool,
    /// Maximum number of steps, after which an episode is truncated.
    pub max_episode_steps: u32,
    /// The task instruction.
    pub language: String,
    /// True for a VectorEnv: all copies step at once.
    pub together: bool,
    /// Messages for the user.
    pub notes: Vec<String>,
    /// Versions of the interpreter and of the imported packages, by name.
    pub versions: Value,
}

/// The action vector in JSON, where a null bound means infinity.
#[derive(Deserialize)]
struct ActionJson {
    names: Vec<String>,
    low: Vec<Option<f64>>,
    high: Vec<Option<f64>>,
    #[serde(default)]
    grid: Vec<f32>,
}

fn action<'de, D: Deserializer<'de>>(from: D) -> Result<ActionSpec, D::Error> {
    let ActionJson {
        names,
        low,
        high,
        grid,
    } = ActionJson::deserialize(from)?;
    let ends = |ends: Vec<Option<f64>>, infinite: f32| {
        ends.into_iter()
            .map(|end| end.map_or(infinite, |end| end as f32))
            .collect()
    };
    Ok(ActionSpec {
        names,
        low: ends(low, f32::NEG_INFINITY),
        high: ends(high, f32::INFINITY),
        grid,
    })
}

impl Hello {
    /// Parses and validates a child's description.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn new(text: &[u8]) -> Result<Self, String> {
        let broken = |err| format!("its JSON is broken: {err}");
        let hello: Self = serde_json::from_slice(text).map_err(broken)?;
        hello.check()?;
        Ok(hello)
    }

    fn check(&self) -> Result<(), String> {
        let dim = self.action.names.len();
        if dim == 0
            || dim > LONGEST_VECTOR
            || self.action.low.len() != dim
            || self.action.high.len() != dim
        {
            let wanted = format!("1 to {LONGEST_VECTOR} with both bounds");
            return Err(format!(
                "its action has {dim} dimensions, expected {wanted}"
            ));
        }
        let grid = &self.action.grid;
        if grid.len() > dim || !grid.iter().all(|step| step.is_finite() && *step >= 0.0) {
            let wanted = "expected a finite number from 0 for each";
            return Err(format!(
                "the grid of its {dim} actions is {grid:?}, {wanted}"
            ));
        }
        if self.control_hz > FASTEST {
            let found = format!("it has {} steps per second", self.control_hz);
            return Err(format!("{found}, expected at most {FASTEST}"));
        }
        if self.control_hz == 0 || self.max_episode_steps == 0 {
            return Err("it has 0 steps per second or per episode".to_owned());
        }
        unique("state vectors", self.state.iter().map(|(name, _)| name))?;
        unique("cameras", self.cameras.iter().map(|(name, _, _)| name))?;
        if let Some((name, length)) = self
            .state
            .iter()
            .find(|(_, length)| !(1..=LONGEST_VECTOR).contains(length))
        {
            let found = format!("state `{name}` has {length} numbers");
            return Err(format!("{found}, expected 1 to {LONGEST_VECTOR}"));
        }
        if let Some(Discrete { count, names, .. }) = &self.discrete
            && (*count == 0 || names.len() > *count || dim != 1)
        {
            let found = format!("{} names for {count} actions", names.len());
            return Err(format!("it has {found} in {dim} dimensions"));
        }
        let side = 1..=LARGEST_SIDE;
        match self
            .cameras
            .iter()
            .find(|(_, height, width)| !side.contains(height) || !side.contains(width))
        {
            Some((name, height, width)) => Err(format!(
                "camera `{name}` is {height}x{width}, expected sides of 1 to {LARGEST_SIDE}"
            )),
            None => Ok(()),
        }
    }

    /// Returns whether two children describe the same environment.
    pub fn same(&self, other: &Self) -> bool {
        let shown = |hello: &Self| {
            (
                hello.state.clone(),
                hello.cameras.clone(),
                hello.action.clone(),
                hello.together,
            )
        };
        shown(self) == shown(other)
    }

    /// Returns whether copies may begin episodes by themselves. Those of a VectorEnv are reset
    /// together, and a process that is replaced after some episodes has to come to an end between
    /// two.
    pub fn takes_offers(&self, recycle_after: Option<u64>) -> bool {
        !self.together && recycle_after.is_none()
    }

    /// Returns the versions of packages by name. What is too long or no text is left out, because no
    /// episode depends on it.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let members = self.versions.as_object().into_iter().flatten();
        let texts = members.filter_map(|(name, version)| Some((name.as_str(), version.as_str()?)));
        let is_short =
            |(name, version): &(&str, &str)| name.len().max(version.len()) <= LONGEST_VERSION;
        texts
            .filter(is_short)
            .take(MOST_VERSIONS)
            .map(|(name, version)| (name.to_owned(), version.to_owned()))
            .collect()
    }

    /// Converts the description to an [`EnvSpec`].
    pub fn spec(&self, name: &str, language: Option<&str>, ends_on_success: bool) -> EnvSpec {
        let camera = |(name, height, width): &(String, u32, u32)| CameraSpec {
            name: name.clone(),
            height: *height,
            width: *width,
        };
        let interface = Interface {
            name: name.to_owned(),
            state: self.state.clone(),
            cameras: self.cameras.iter().map(camera).collect(),
            action: self.action.clone(),
            control_hz: self.control_hz,
            max_episode_steps: self.max_episode_steps,
            language: language.unwrap_or(&self.language).to_owned(),
        };
        EnvSpec {
            discrete: self.discrete.clone(),
            is_control_hz_assumed: self.is_control_hz_assumed,
            ends_on_success,
            ..EnvSpec::seen(interface)
        }
    }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains(char::is_control) {
            let start: String = name.escape_debug().take(LONGEST_NAME).collect();
            let wanted = format!("expected 1 to {LONGEST_NAME} printable bytes");
            return Err(format!("one of its {what} is called `{start}`, {wanted}"));
        }
        if !seen.insert(name) {
            return Err(format!("two of its {what} are called `{name}`"));
        }
    }
    if seen.len() > MOST_NAMES {
        let count = seen.len();
        return Err(format!(
            "it has {count} {what}, expected at most {MOST_NAMES}"
        ));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub fn hello() -> Value {
        json!({
            "state": [["position", 3], ["width", 1]], "cameras": [["front", 4, 5]],
            "action": {"names": ["x", "y"], "low": [-1.0, null], "high": [1.0, null], "grid": [0.0, 1.0]},
            "control_hz": 20, "is_control_hz_assumed": false, "max_episode_steps": 50, "language": "go", "together": false, "notes": [], "versions": {},
        })
    }

    fn refusal(pointer: &str, value: Value) -> String {
        let mut broken = hello();
        *broken.pointer_mut(pointer).unwrap() = value;
        Hello::new(broken.to_string().as_bytes()).unwrap_err()
    }

    #[test]
    fn an_end_that_is_null_is_infinite() {
        let spec =
            Hello::new(hello().to_string().as_bytes())
                .unwrap()
                .spec("gym:x", Some("stop"), false);
        assert_eq!(
            (&spec.action.low, &spec.action.high),
            (&vec![-1.0, f32::NEG_INFINITY], &vec![1.0, f32::INFINITY])
        );
        assert_eq!((spec.language.as_str(), spec.sim_dt), ("stop", 0.05));
        assert_eq!(
            spec.cameras[0],
            CameraSpec {
                name: "front".to_owned(),
                height: 4,
                width: 5
            }
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(refusal("/cameras/0/1", json!(0)).contains("camera `front` is 0x5"));
        assert!(refusal("/cameras/0/1", json!(1_000_000)).contains("1000000x5"));
        assert!(refusal("/cameras/0/1", json!(-1)).contains("broken"));
        assert!(refusal("/state/0/1", json!(0)).contains("state `position` has 0 numbers"));
        assert!(
            refusal("/state/1/0", json!("position"))
                .contains("two of its state vectors are called `position`")
        );
        assert!(refusal("/action/names", json!([])).contains("0 dimensions"));
        assert!(refusal("/action/low", json!([0.0])).contains("2 dimensions"));
        assert!(
            refusal("/action/grid", json!([0.0, -1.0]))
                .contains("the grid of its 2 actions is [0.0, -1.0]")
        );
        assert!(refusal("/control_hz", json!(0)).contains("0 steps per second"));
        assert!(
            refusal("/control_hz", json!(4_000_000_000u32))
                .contains("4000000000 steps per second, expected at most 10000")
        );
        assert!(
            refusal("/cameras/0/0", json!("a\u{1b}[2J"))
                .contains("called `a\\u{1b}[2J`, expected 1 to 128 printable")
        );
        assert!(refusal("/cameras/0/0", json!("")).contains("1 to 128 printable"));
        assert!(refusal("/state/0/0", json!("x".repeat(200_000))).len() < 300);
        assert!(Hello::new(b"[]").is_err());
    }

    #[test]
    fn versions_that_make_no_sense_are_left_out() {
        let mut told = hello();
        told["versions"] = json!({"numpy": "2.1", "x": 7, "long": "1".repeat(200)});
        let versions = Hello::new(told.to_string().as_bytes()).unwrap().versions();
        assert_eq!(versions, [("numpy".to_owned(), "2.1".to_owned())].into());
        told["versions"] = json!([]);
        assert!(
            Hello::new(told.to_string().as_bytes())
                .unwrap()
                .versions()
                .is_empty()
        );
    }

    #[test]
    fn children_may_speak_differently_of_the_same() {
        let one = Hello::new(hello().to_string().as_bytes()).unwrap();
        let other = Hello {
            language: "other".to_owned(),
            notes: vec!["x".to_owned()],
            ..one.clone()
        };
        assert!(one.same(&other));
        assert!(!one.same(&Hello {
            cameras: Vec::new(),
            ..one.clone()
        }));
    }
}
