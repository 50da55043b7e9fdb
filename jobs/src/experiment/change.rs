//! `shared.<path>=<value>` and `runs.<name>.<path>=<value>`: what the command line changes in an
//! Experiment; and `<path>=<value>`, what `--set` changes in a configuration of RLinf.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::experiment::value;
use crate::refusal::Refusal;
use crate::tree::{self, MOST_PARTS};

/// The first part of a change that concerns all runs.
const SHARED: &str = "shared";

/// The first part of a change that concerns one run, which is the second part.
const RUNS: &str = "runs";

/// A change in Hydra's form: `KEY=VALUE`, for an Experiment also `+KEY=VALUE` and `++KEY=VALUE`, set
/// a value, `~KEY` removes it; `~runs.<name>` removes a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The parts of the key; in an Experiment at least two: `shared` or `runs`, and what is below.
    key: Vec<String>,
    /// The new value; `None` removes the key.
    value: Option<Value>,
}

impl Change {
    /// Reads `KEY=VALUE` of `--set`.
    ///
    /// # Errors
    /// Refuses a text that has no key, or whose value is not complete.
    pub fn setting(text: &str) -> Result<Self, Refusal> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Refusal::new(format_args!(
                "`{text}` has no `=`: expected KEY=VALUE, for example env.eval.total_num_envs=8"
            )));
        };
        let (key, value) = (parts(key)?, Some(read(value)?));
        Ok(Self { key, value })
    }

    /// Returns a tree with this setting only.
    pub fn tree(&self) -> Value {
        tree_of(&self.key, self.value.clone().unwrap_or_default())
    }

    /// Returns the dotted key.
    pub(crate) fn name(&self) -> String {
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
            Some(value) => *to = tree::merge(to.take(), tree_of(path, value.clone())),
            None => {
                let path: Vec<_> = path.iter().map(String::as_str).collect();
                tree::take(to, &path);
            }
        }
    }
}

fn tree_of(path: &[String], value: Value) -> Value {
    let below = |value, part: &String| Value::Object(Map::from_iter([(part.clone(), value)]));
    path.iter().rev().fold(value, below)
}

impl FromStr for Change {
    type Err = Refusal;

    /// Reads a change of an Experiment.
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
        let key = parts(key)?;
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
        let value = (!removes).then(|| read(text)).transpose()?;
        Ok(Self { key, value })
    }
}

fn read(text: &str) -> Result<Value, Refusal> {
    value::read(text).map_err(|err| err.inside(format_args!("`{text}`")))
}

/// Returns the parts of a dotted key; none is empty.
fn parts(key: &str) -> Result<Vec<String>, Refusal> {
    let parts: Vec<_> = key.split('.').map(|part| part.trim().to_owned()).collect();
    match parts.iter().any(String::is_empty) || parts.len() > MOST_PARTS {
        true => Err(Refusal::new(format_args!(
            "`{key}` is not a key: expected names joined by dots, for example \
             env.eval.total_num_envs"
        ))),
        false => Ok(parts),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn set(text: &str) -> Value {
        Change::setting(text).unwrap().tree()
    }

    #[test]
    fn settings_have_the_types_of_hydra() {
        let found = set("env.eval.total_num_envs=8");
        assert_eq!(found, json!({"env": {"eval": {"total_num_envs": 8}}}));
        assert_eq!(set("a=[256, 128]"), json!({"a": [256, 128]}));
        assert_eq!(set("a=true"), json!({"a": true}));
        assert_eq!(set("a=\"8\""), json!({"a": "8"}));
        assert_eq!(set("a="), json!({"a": ""}));
        assert_eq!(set("a=null"), json!({"a": null}));
        assert_eq!(set("a=b=c"), json!({"a": "b=c"}));
        assert_eq!(set("lr=3e-4"), json!({"lr": 3e-4}));
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        let refusal = |text: &str| Change::setting(text).unwrap_err().to_string();
        assert!(refusal("a.b").contains("has no `=`"));
        assert!(refusal("a..b=1").contains("is not a key"));
        assert!(refusal("=1").contains("is not a key"));
        assert_eq!(refusal("a=["), "`[`: `]` is missing at the end");
        assert_eq!(refusal("a=[1] 2"), "`[1] 2`: found `2`, expected the end");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,30}", key in "[a-z.]{0,9}") {
            let _ = (text.parse::<Change>(), Change::setting(&text));
            let _ = Change::setting(&format!("{key}={text}"));
            let _ = format!("shared.{key}={text}").parse::<Change>();
        }
    }
}
