//! The policy that `--policy` and `--policy-config` name.

use std::path::Path;

use serde_json::{Map, Value};

use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::installed;
use crate::policies::PolicyType;
use crate::refusal::Refusal;

/// A policy as in a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyChoice {
    /// Registered policy name, `policy_type` of a job.
    pub policy_type: String,
    /// Settings of the policy, `policy_config_dict` of a job.
    pub config: Map<String, Value>,
}

impl PolicyChoice {
    /// Returns the policy of `--policy`.
    ///
    /// # Errors
    /// Refuses a value that is not a JSON object of the expected form, with the name of the option.
    pub fn read(policy: &str) -> Result<Self, Refusal> {
        chosen(&installed::found(policy))
    }

    /// Returns the policy with the settings of `--policy-config`, which override its own.
    ///
    /// # Errors
    /// Fails like [`PolicyChoice::read`], and for a file that cannot be read.
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

fn chosen(policy: &str) -> Result<PolicyChoice, Refusal> {
    let choice = |policy_type: &str, config| PolicyChoice {
        policy_type: policy_type.to_owned(),
        config,
    };
    if PolicyType::of(policy).is_none() && Path::new(policy).is_dir() {
        let config = Map::from_iter([("model_path".to_owned(), policy.into())]);
        return Ok(choice("gr00t", config));
    }
    if !policy.trim_start().starts_with('{') {
        return Ok(choice(policy, Map::new()));
    }
    let mut job = object("--policy", policy)?;
    let config = job.remove("policy_config_dict");
    let config = config.unwrap_or_else(|| Map::new().into());
    let policy_type = job.remove("policy_type");
    if let Some(field) = job.keys().next() {
        return Err(Refusal::new(format_args!(
            "--policy has unknown field `{field}`, expected policy_type and policy_config_dict"
        )));
    }
    match (policy_type, config) {
        (Some(Value::String(policy_type)), Value::Object(config)) => {
            Ok(choice(&policy_type, config))
        }
        _ => Err(Refusal::at(
            "--policy",
            "expected a string `policy_type` and an object `policy_config_dict`",
        )),
    }
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
        assert_eq!(chosen("src").unwrap().policy_type, "gr00t");
        assert_eq!(chosen("python").unwrap().policy_type, "python");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("python");
        std::fs::create_dir(&path).unwrap();
        let policy = chosen(&path.display().to_string()).unwrap();
        assert_eq!(policy.policy_type, "gr00t");
    }
}
