//! `--path THERE=HERE`: where a file or folder that a certificate names is on this machine. Pure.

use std::path::Path;
use std::str::FromStr;

use jobs::refusal::Refusal;
use serde_json::Value;

/// A path of another machine, and where the same file or folder is on this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathMapping {
    there: String,
    here: String,
}

impl FromStr for PathMapping {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        text.split_once('=')
            .filter(|(there, here)| !there.is_empty() && !here.is_empty())
            .map(|(there, here)| Self::new(there, here))
            .ok_or_else(|| {
                Refusal::new(format_args!(
                    "`{text}` is no replacement: expected THERE=HERE, for example \
                     `checkpoints/a=/data/a`"
                ))
            })
    }
}

impl PathMapping {
    /// Returns the mapping of one path to another.
    pub(super) fn new(there: &str, here: &str) -> Self {
        Self {
            there: there.to_owned(),
            here: here.to_owned(),
        }
    }

    /// Replaces the path, and what is below it, in the jobs of a certificate.
    ///
    /// # Errors
    /// Refuses a path that no job names.
    pub(super) fn apply(&self, jobs: &mut Value, certificate: &Path) -> Result<(), Refusal> {
        match self.replace(jobs) {
            0 => Err(Refusal::at(
                "--path",
                format_args!(
                    "`{}` is in no job of `{}`",
                    self.there,
                    certificate.display()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Returns where a path of the other machine is here, if it is the mapped one, below it, or an
    /// entry point in it (`policy.py:make`).
    pub(super) fn of(&self, path: &str) -> Option<String> {
        let rest = path
            .strip_prefix(&self.there)
            .filter(|rest| rest.is_empty() || rest.starts_with(['/', ':']))?;
        Some(format!("{}{rest}", self.here))
    }

    /// Replaces the path in all texts but the names of jobs. Returns how often it occurred.
    pub(super) fn replace(&self, value: &mut Value) -> usize {
        match value {
            Value::String(text) => {
                let Some(here) = self.of(text) else { return 0 };
                *text = here;
                1
            }
            Value::Array(items) => items.iter_mut().map(|item| self.replace(item)).sum(),
            Value::Object(fields) => fields
                .iter_mut()
                .filter(|(name, _)| *name != "name")
                .map(|(_, field)| self.replace(field))
                .sum(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_is_replaced_with_what_is_below_it_and_nothing_else() {
        let mut jobs = json!({"jobs": [{"name": "a/b", "policy_config_dict": {"model_path": "a/b"},
            "arena_env_args": {"environment": "a/b/envs.py:make", "texture": "a/bc"}}]});
        assert_eq!(PathMapping::new("a/b", "/here").replace(&mut jobs), 2);
        let job = &jobs["jobs"][0];
        assert_eq!(job["name"], "a/b");
        assert_eq!(job["policy_config_dict"]["model_path"], "/here");
        assert_eq!(job["arena_env_args"]["environment"], "/here/envs.py:make");
        assert_eq!(job["arena_env_args"]["texture"], "a/bc");
    }

    #[test]
    fn a_path_that_no_job_names_is_an_error() {
        let mut jobs = json!({"jobs": [{"name": "a", "policy_config_dict": {}}]});
        let err = PathMapping::new("a", "b").apply(&mut jobs, Path::new("c.json"));
        assert_eq!(
            err.unwrap_err().to_string(),
            "--path: `a` is in no job of `c.json`"
        );
    }

    #[test]
    fn a_replacement_has_two_sides() {
        let read = PathMapping::from_str;
        assert_eq!(read("a=b").unwrap(), PathMapping::new("a", "b"));
        assert!(read("a=").is_err() && read("a").is_err());
    }
}
