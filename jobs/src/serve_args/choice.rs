//! The policy that `--policy` and `--policy-config` name.

use std::path::Path;

use serde_json::{Map, Value};

use crate::installed;
use crate::policies::PolicyType;

/// A policy as in a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyChoice {
    /// Registered policy name, `policy_type` of a job.
    pub policy_type: String,
    /// Settings of the policy, `policy_config_dict` of a job.
    pub config: Map<String, Value>,
}

/// Why `--policy` or `--policy-config` does not name a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyChoiceError {
    /// The file of an option cannot be read.
    #[error("{option} `{path}`: {err}")]
    Read {
        /// The option.
        option: &'static str,
        /// Path of the file.
        path: String,
        /// The error of the file system.
        err: std::io::Error,
    },
    /// A value is not a JSON object.
    #[error("{option}: not a JSON object: {err}")]
    Json {
        /// The option.
        option: &'static str,
        /// The error of the parser.
        err: serde_json::Error,
    },
    /// The object has a field that no policy has.
    #[error("--policy has unknown field `{field}`, expected policy_type and policy_config_dict")]
    UnknownField {
        /// Name of the field.
        field: String,
    },
    /// A field of the object is missing or has another type.
    #[error("--policy: expected a string `policy_type` and an object `policy_config_dict`")]
    Incomplete,
}

impl PolicyChoice {
    /// Returns the policy of `--policy`.
    ///
    /// # Errors
    /// Returns an error with the name of the option if its value is not a JSON object of the
    /// expected form.
    pub fn read(policy: &str) -> Result<Self, PolicyChoiceError> {
        chosen(&installed::found(policy))
    }

    /// Returns the policy with the settings of `--policy-config`, which override its own.
    ///
    /// # Errors
    /// Fails like [`PolicyChoice::read`], and for a file that cannot be read.
    pub fn with(mut self, config: Option<&str>) -> Result<Self, PolicyChoiceError> {
        if let Some(text) = config {
            self.config.extend(json_option("--policy-config", text)?);
        }
        Ok(self)
    }
}

/// Returns the JSON object that an option contains, or that is in the file that it names.
pub(super) fn json_option(
    option: &'static str,
    text: &str,
) -> Result<Map<String, Value>, PolicyChoiceError> {
    if text.trim_start().starts_with('{') {
        return object(option, text);
    }
    let json = std::fs::read_to_string(text).map_err(|err| PolicyChoiceError::Read {
        option,
        path: text.to_owned(),
        err,
    })?;
    object(option, &json)
}

fn chosen(policy: &str) -> Result<PolicyChoice, PolicyChoiceError> {
    if PolicyType::of(policy).is_none() && Path::new(policy).is_dir() {
        let config = Map::from_iter([("model_path".to_owned(), policy.into())]);
        return Ok(PolicyChoice {
            policy_type: "gr00t".to_owned(),
            config,
        });
    }
    if !policy.trim_start().starts_with('{') {
        return Ok(PolicyChoice {
            policy_type: policy.to_owned(),
            config: Map::new(),
        });
    }
    let mut job = object("--policy", policy)?;
    let config = job
        .remove("policy_config_dict")
        .unwrap_or_else(|| Map::new().into());
    match (job.remove("policy_type"), config, job.keys().next()) {
        (_, _, Some(field)) => Err(PolicyChoiceError::UnknownField {
            field: field.clone(),
        }),
        (Some(Value::String(policy_type)), Value::Object(config), None) => Ok(PolicyChoice {
            policy_type,
            config,
        }),
        _ => Err(PolicyChoiceError::Incomplete),
    }
}

fn object(option: &'static str, text: &str) -> Result<Map<String, Value>, PolicyChoiceError> {
    serde_json::from_str(text).map_err(|err| PolicyChoiceError::Json { option, err })
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
