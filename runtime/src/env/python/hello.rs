//! The description that a child sends of its environment. It is validated, because it sizes memory
//! and reaches policies and files.

use std::collections::BTreeMap;

use jobs::interface::Interface;
use jobs::printable::printable_line;
use serde::Deserialize;
use serde_json::Value;

use crate::env::{Discrete, EnvSpec};

/// Maximum edge of an image in pixels.
const LONGEST_EDGE: u32 = 8192;
/// Maximum length of a state or action vector.
const LONGEST_VECTOR: usize = 1 << 20;
/// Maximum number of cameras, and of state vectors.
const MOST_NAMES: usize = 512;
/// Maximum bytes of a name, which becomes part of a file name.
const LONGEST_NAME: usize = 128;
/// Maximum number of versions that are noted, and bytes of a name or version.
const MOST_VERSIONS: usize = 64;
const LONGEST_VERSION: usize = 100;
/// Maximum characters of a refusal, which may repeat a name of the child.
const LONGEST_REFUSAL: usize = 280;
/// Maximum control frequency in steps per second: ten times that of the fastest controllers. It is
/// also the frame rate of videos.
const FASTEST: u32 = 10_000;

/// The description that a child sends of its environment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Hello {
    /// What it shows and takes.
    pub interface: Interface,
    /// The discrete action space, if the environment has one `Discrete`.
    #[serde(default)]
    discrete: Option<Discrete>,
    /// True if neither the job nor the environment says the control frequency.
    #[serde(default)]
    is_control_hz_assumed: bool,
    /// True for a VectorEnv: all copies step at once.
    pub together: bool,
    /// Messages for the user.
    pub notes: Vec<String>,
    /// Versions of the interpreter and of the imported packages, by name.
    versions: Value,
}

impl Hello {
    /// Parses and validates a child's description.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn new(text: &[u8]) -> Result<Self, String> {
        let broken = |err| format!("its JSON is broken: {err}");
        let told: Value = serde_json::from_slice(text).map_err(broken)?;
        let hello = Self::deserialize(told).map_err(|err| {
            let refusal = printable_line(&err.to_string()).into_owned();
            refusal.chars().take(LONGEST_REFUSAL).collect::<String>()
        })?;
        hello.check().map_or(Ok(hello), Err)
    }

    /// Returns what is wrong with it, if anything is.
    fn check(&self) -> Option<String> {
        let Interface {
            state,
            cameras,
            action,
            control_hz,
            ..
        } = &self.interface;
        if *control_hz > FASTEST {
            return Some(format!(
                "it has {control_hz} steps per second, expected at most {FASTEST}"
            ));
        }
        let states = unusable("state vectors", state.iter().map(|(name, _)| name));
        let names = || unusable("cameras", cameras.iter().map(|camera| &camera.name));
        if let Some(wrong) = states.or_else(names) {
            return Some(wrong);
        }
        if let Err(refusal) = self.interface.check_size(LONGEST_EDGE, LONGEST_VECTOR) {
            return Some(refusal.to_string());
        }
        let dim = action.names.len();
        if let Some(Discrete { count, names, .. }) = &self.discrete
            && (*count == 0 || names.len() > *count || dim != 1)
        {
            let names = names.len();
            return Some(format!(
                "it has {names} names for {count} actions in {dim} dimensions"
            ));
        }
        None
    }

    /// Returns whether two children describe the same environment.
    pub fn same(&self, other: &Self) -> bool {
        let (one, two) = (&self.interface, &other.interface);
        (&one.state, &one.cameras, &one.action, self.together)
            == (&two.state, &two.cameras, &two.action, other.together)
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
        let mut interface = self.interface.clone();
        name.clone_into(&mut interface.name);
        if let Some(language) = language {
            language.clone_into(&mut interface.language);
        }
        EnvSpec {
            discrete: self.discrete.clone(),
            is_control_hz_assumed: self.is_control_hz_assumed,
            ends_on_success,
            ..EnvSpec::seen(interface)
        }
    }
}

/// Returns why names cannot be used, if they cannot.
fn unusable<'a>(what: &str, names: impl ExactSizeIterator<Item = &'a String>) -> Option<String> {
    let count = names.len();
    for name in names {
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains(char::is_control) {
            let start: String = name.escape_debug().take(LONGEST_NAME).collect();
            return Some(format!(
                "one of its {what} is called `{start}`, expected 1 to {LONGEST_NAME} printable \
                 bytes"
            ));
        }
    }
    (count > MOST_NAMES).then(|| format!("it has {count} {what}, expected at most {MOST_NAMES}"))
}

#[cfg(test)]
mod tests {
    use jobs::interface::CameraSpec;
    use serde_json::json;

    use super::*;
    use crate::env::python::tests::hello;

    fn read(told: &Value) -> Result<Hello, String> {
        Hello::new(told.to_string().as_bytes())
    }

    #[test]
    fn an_end_that_is_null_is_infinite() {
        let spec = read(&hello()).unwrap().spec("gym:x", Some("stop"), false);
        assert_eq!(
            (&spec.action.low, &spec.action.high),
            (&vec![-1.0, f32::NEG_INFINITY], &vec![1.0, f32::INFINITY])
        );
        assert_eq!((spec.language.as_str(), spec.sim_dt), ("stop", 0.05));
        let CameraSpec {
            name,
            height,
            width,
        } = &spec.cameras[0];
        assert_eq!((name.as_str(), *height, *width), ("front", 4, 5));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        rig::cases::check("src/env/python/hello.txt", |given| {
            let mut broken = hello();
            broken["interface"] = rig::cases::changed(&broken["interface"], given);
            read(&broken).unwrap_err()
        });
        let mut long = hello();
        for length in [0, 1] {
            long["interface"]["states"] = json!({"x".repeat(200_000): length});
            assert!(read(&long).unwrap_err().len() < 300);
        }
        assert!(Hello::new(b"[]").is_err());
    }

    #[test]
    fn versions_that_make_no_sense_are_left_out() {
        let mut told = hello();
        told["versions"] = json!({"numpy": "2.1", "x": 7, "long": "1".repeat(200)});
        let versions = read(&told).unwrap().versions();
        assert_eq!(versions, [("numpy".to_owned(), "2.1".to_owned())].into());
        told["versions"] = json!([]);
        assert!(read(&told).unwrap().versions().is_empty());
    }

    #[test]
    fn children_may_speak_differently_of_the_same() {
        let one = read(&hello()).unwrap();
        let mut other = one.clone();
        other.interface.language = "other".to_owned();
        other.notes = vec!["x".to_owned()];
        assert!(one.same(&other));
        other.interface.cameras.clear();
        assert!(!one.same(&other));
    }
}
