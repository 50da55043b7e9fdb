//! The policy that `--policy` and `--policy-config` name.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::installed;
use crate::policies::PolicyType;
use crate::refusal::Refusal;
use crate::settings;

/// The option.
const POLICY: &str = "--policy";

/// A policy as in a job.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct PolicyChoice {
    /// Registered policy name, `policy_type` of a job.
    pub policy_type: String,
    /// Settings of the policy, `policy_config_dict` of a job.
    #[serde(rename = "policy_config_dict", default)]
    pub config: Map<String, Value>,
}

impl PolicyChoice {
    /// Returns the policy of `--policy`: a name, the folder of a checkpoint, or a JSON object.
    ///
    /// # Errors
    /// Refuses a JSON object of another form, with the name of the option.
    pub fn read(policy: &str) -> Result<Self, Refusal> {
        let policy = &*installed::found(policy);
        if policy.trim_start().starts_with('{') {
            return settings::read(POLICY, &object(POLICY, policy)?);
        }
        let mut choice = Self {
            policy_type: policy.to_owned(),
            config: Map::new(),
        };
        if PolicyType::of(policy).is_none() && Path::new(policy).is_dir() {
            choice.policy_type = PolicyType::Gr00t.name().to_owned();
            choice.config.insert("model_path".to_owned(), policy.into());
        }
        Ok(choice)
    }

    /// Returns the policy with the settings of `--policy-config`, which override its own.
    ///
    /// # Errors
    /// Refuses a value that is not a JSON object, and a file that cannot be read.
    pub fn with(mut self, config: Option<&str>) -> Result<Self, Refusal> {
        if let Some(text) = config {
            self.config.extend(json_option("--policy-config", text)?);
        }
        Ok(self)
    }
}

/// Returns the JSON object that an option contains, or that is in the file that it names.
pub(super) fn json_option(option: &str, text: &str) -> Result<Map<String, Value>, Refusal> {
    if text.trim_start().starts_with('{') {
        return object(option, text);
    }
    let json = files::read_text(Path::new(text), MAX_DOCUMENT_BYTES)
        .map_err(|err| Refusal::at(format_args!("{option} `{text}`"), err))?;
    object(option, &json)
}

fn object(option: &str, text: &str) -> Result<Map<String, Value>, Refusal> {
    serde_json::from_str(text)
        .map_err(|err| Refusal::at(option, format_args!("not a JSON object: {err}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_comes_before_a_folder_of_its_name() {
        // Tests run in the folder of the crate, which has a folder `src`.
        assert_eq!(PolicyChoice::read("src").unwrap().policy_type, "gr00t");
        assert_eq!(PolicyChoice::read("python").unwrap().policy_type, "python");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("python");
        std::fs::create_dir(&path).unwrap();
        let policy = PolicyChoice::read(&path.display().to_string()).unwrap();
        assert_eq!(policy.policy_type, "gr00t");
    }
}
