//! `shared.<path>=<value>` and `runs.<name>.<path>=<value>`: what the command line changes in an
//! Experiment.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::config::{Key, tree};
use crate::experiment::value;
use crate::refusal::Refusal;

/// The first part of a change that concerns all runs.
const SHARED: &str = "shared";

/// The first part of a change that concerns one run, which is the second part.
const RUNS: &str = "runs";

/// A change to an Experiment, in Hydra's form: `KEY=VALUE`, `+KEY=VALUE` and `++KEY=VALUE` set a
/// value, `~KEY` removes it; `~runs.<name>` removes a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The parts of the key, at least two: `shared` or `runs`, and what is below.
    key: Vec<String>,
    /// The new value; `None` removes the key.
    value: Option<Value>,
}

impl Change {
    /// Returns the dotted key.
    pub(super) fn name(&self) -> String {
        self.key.join(".")
    }

    /// Returns whether all runs are concerned.
    pub(super) fn is_shared(&self) -> bool {
        self.key[0] == SHARED
    }

    /// Returns the name of the run that is concerned, if it is only one.
    pub(super) fn run(&self) -> Option<&str> {
        (!self.is_shared()).then(|| self.key[1].as_str())
    }

    /// Returns whether it removes the whole run.
    pub(super) fn removes_run(&self) -> bool {
        !self.is_shared() && self.key.len() == 2
    }

    /// Applies it to the shared values or to its run.
    pub(super) fn apply(&self, to: &mut Value) {
        let path = &self.key[if self.is_shared() { 1 } else { 2 }..];
        match &self.value {
            Some(value) => {
                let below =
                    |value, part: &String| Value::Object(Map::from_iter([(part.clone(), value)]));
                let change = path.iter().rev().fold(value.clone(), below);
                *to = tree::merge(to.take(), change);
            }
            None => {
                let path: Vec<_> = path.iter().map(String::as_str).collect();
                tree::take(to, &path);
            }
        }
    }
}

impl FromStr for Change {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        if !text.starts_with('~') && !text.contains('=') {
            return Err(Refusal::new(format_args!(
                "`{text}` is neither an option nor KEY=VALUE; a jobs file is given by --jobs"
            )));
        }
        let (text, removes) = match text.strip_prefix('~') {
            Some(text) => (text, true),
            None => (text.trim_start_matches('+'), false),
        };
        // Hydra allows the value that is removed to be named.
        let (key, text) = text.split_once('=').unwrap_or((text, ""));
        let Key(key) = key.parse()?;
        let least = match (key[0].as_str(), removes) {
            (SHARED, _) | (RUNS, true) => 2,
            (RUNS, false) => 3,
            _ => usize::MAX,
        };
        if key.len() < least {
            return Err(Refusal::new(format_args!(
                "`{}` is neither `shared.<path>` nor `runs.<name>.<path>`, the keys of an \
                 Experiment",
                key.join(".")
            )));
        }
        let value = match removes {
            true => None,
            false => Some(value::read(text).map_err(|err| err.inside(format_args!("`{text}`")))?),
        };
        Ok(Self { key, value })
    }
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name()),
            None => write!(f, "~{}", self.name()),
        }
    }
}
