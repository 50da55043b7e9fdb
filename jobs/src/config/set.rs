//! `--set a.b=c`: a setting of the command line that overrides those of all files.

use std::fmt::{Display, Formatter};
use std::path::Path;
use std::str::FromStr;

use serde_json::{Map, Value};

use crate::config::tree::{self, MOST_PARTS};
use crate::refusal::Refusal;

/// A setting with its dotted key, and its value parsed as YAML.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The parts of the key; none is empty.
    pub key: Vec<String>,
    /// The value: `8` is a number, `true` a bool, `[256, 128]` a list, `"8"` a text.
    pub value: Value,
}

impl Override {
    /// Returns the dotted key.
    pub fn name(&self) -> String {
        self.key.join(".")
    }

    /// Returns a tree with this setting only.
    pub fn tree(&self) -> Value {
        let below =
            |value: Value, part: &String| Value::Object(Map::from_iter([(part.clone(), value)]));
        self.key.iter().rev().fold(self.value.clone(), below)
    }
}

/// The parts of a dotted key; none is empty.
pub(crate) struct Key(pub(crate) Vec<String>);

impl FromStr for Key {
    type Err = Refusal;

    fn from_str(key: &str) -> Result<Self, Refusal> {
        let parts = key.trim().split('.').map(|part| part.trim().to_owned());
        let parts: Vec<String> = parts.collect();
        match parts.iter().any(String::is_empty) || parts.len() > MOST_PARTS {
            true => Err(Refusal::new(format_args!(
                "`{key}` is not a key: expected names joined by dots, for example \
                 env.eval.total_num_envs"
            ))),
            false => Ok(Self(parts)),
        }
    }
}

impl FromStr for Override {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Refusal::new(format_args!(
                "`{text}` has no `=`: expected KEY=VALUE, for example env.eval.total_num_envs=8"
            )));
        };
        let Key(parts) = key.parse()?;
        let read = tree::parse(Path::new("--set"), &format!("value: {value}"));
        let Ok(Value::Object(mut read)) = read else {
            return Err(Refusal::new(format_args!("`{value}` is not a YAML value")));
        };
        match (read.shift_remove("value"), read.is_empty()) {
            (Some(value), true) => Ok(Self { key: parts, value }),
            _ => Err(Refusal::new(format_args!(
                "`{value}` is more than one YAML value"
            ))),
        }
    }
}

impl Display for Override {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.name(), self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        text.parse::<Override>().unwrap().tree()
    }

    #[test]
    fn values_have_the_types_of_yaml() {
        let found = read("env.eval.total_num_envs=8");
        assert_eq!(found, json!({"env": {"eval": {"total_num_envs": 8}}}));
        assert_eq!(read("a=[256, 128]"), json!({"a": [256, 128]}));
        assert_eq!(read("a=true"), json!({"a": true}));
        assert_eq!(read("a=\"8\""), json!({"a": "8"}));
        assert_eq!(read("a="), json!({"a": null}));
        assert_eq!(read("a=b=c"), json!({"a": "b=c"}));
        assert_eq!(read("lr=3e-4"), json!({"lr": 3e-4}));
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        let refusal = |text: &str| text.parse::<Override>().unwrap_err().to_string();
        assert!(refusal("a.b").contains("has no `=`"));
        assert!(refusal("a..b=1").contains("is not a key"));
        assert!(refusal("=1").contains("is not a key"));
        assert!(refusal("a=[").contains("is not a YAML value"));
        assert!(refusal("a=1\nb: 2").contains("more than one YAML value"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,30}", key in "[a-z.]{0,9}") {
            let _ = text.parse::<Override>();
            let _ = format!("{key}={text}").parse::<Override>();
        }
    }
}
