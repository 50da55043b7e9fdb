//! The environment variables as a value, so that decisions about them can be tested.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The variables with which the launcher was started.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// Returns the environment of this process.
    pub fn inherited() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
        }
    }

    /// Sets one variable.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Returns the value of `name`, which may be empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
    }

    /// Returns the value of `name` if it is not empty.
    pub fn non_empty(&self, name: &str) -> Option<&OsStr> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Returns the value of `name` as text, which may be empty.
    pub fn value(&self, name: &str) -> Option<String> {
        self.get(name)
            .map(|value| value.to_string_lossy().into_owned())
    }

    /// Returns the value of `name` as text, if it is not empty.
    pub fn text(&self, name: &str) -> Option<String> {
        self.value(name).filter(|value| !value.is_empty())
    }

    /// Returns the GPUs that CUDA shows, of which there may be none; `None` for all.
    pub fn visible_devices(&self) -> Option<Cow<'_, str>> {
        self.get("CUDA_VISIBLE_DEVICES").map(OsStr::to_string_lossy)
    }

    /// Returns whether `name` is set, even to an empty value.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        variables
            .into_iter()
            .fold(Self::default(), |env, (name, value)| env.with(name, value))
    }
}
