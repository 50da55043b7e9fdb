//! The environment variables as a value, so that decisions about them can be tested.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The variables that the launcher was started with.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// This process's own.
    pub fn inherited() -> Self {
        Self { variables: std::env::vars_os().collect() }
    }

    /// The same with one variable more, or another value of it.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// The value of `name`; an empty one counts.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The value of `name`, if it has one that is not empty.
    pub fn non_empty(&self, name: &str) -> Option<&OsStr> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Whether `name` is set, even to nothing.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        variables.into_iter().fold(Self::default(), |env, (name, value)| env.with(name, value))
    }
}
