//! Reads the settings of a policy field by field: known names with types and ranges; unknown names
//! are refused.
//!
//! The settings are in the job (`policy_config_dict`), and for some policies also in a YAML file
//! that the job names; the job takes precedence.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::policy::PolicyError;

/// Fields that Arena gives to every policy and that are read elsewhere: the device by
/// [`crate::device`], the number of environments from the job.
const ELSEWHERE: &[&str] = &["policy_device", "policy_device_id", "num_envs"];

/// The settings of one policy.
pub(crate) struct Fields {
    /// Layers in order of precedence: a field's value comes from the first layer that has it.
    layers: Vec<Layer>,
}

struct Layer {
    /// Path of the YAML file; `None` for the job.
    file: Option<PathBuf>,
    left: Map<String, Value>,
}

/// A value and the file that contains it.
struct Found {
    file: Option<PathBuf>,
    value: Value,
}

impl Fields {
    /// Reads the `policy_config_dict` of a job.
    pub(crate) fn of_job(config: &Map<String, Value>) -> Self {
        Self {
            layers: vec![Layer {
                file: None,
                left: config.clone(),
            }],
        }
    }

    /// Adds a YAML file with lower precedence than all layers so far.
    pub(crate) fn under(&mut self, file: &Path) -> Result<(), PolicyError> {
        let left = read_yaml(file)?;
        self.layers.push(Layer {
            file: Some(file.to_owned()),
            left,
        });
        Ok(())
    }

    /// Allows fields that have no effect.
    pub(crate) fn ignore(&mut self, fields: &[&str]) {
        for layer in &mut self.layers {
            layer
                .left
                .retain(|name, _| !fields.contains(&name.as_str()));
        }
    }

    pub(crate) fn string(&mut self, field: &str) -> Result<Option<String>, PolicyError> {
        self.read(field, "a string is needed", |value| {
            value.as_str().map(str::to_owned)
        })
    }

    /// Reads the path of a file or folder. A path in a YAML file is resolved against the working
    /// directory first, then against that file's directory.
    pub(crate) fn path(&mut self, field: &str) -> Result<Option<PathBuf>, PolicyError> {
        let Some(found) = self.take(field) else {
            return Ok(None);
        };
        let Some(text) = found.value.as_str() else {
            return Err(found.refuse(field, "a path is needed"));
        };
        let given = PathBuf::from(text);
        let beside = found
            .file
            .as_deref()
            .and_then(Path::parent)
            .map(|folder| folder.join(&given));
        Ok(Some(
            beside
                .filter(|beside| !given.exists() && beside.exists())
                .unwrap_or(given),
        ))
    }

    /// Reads a string or a list of strings.
    pub(crate) fn strings(&mut self, field: &str) -> Result<Option<Vec<String>>, PolicyError> {
        self.read(
            field,
            "a string or a list of strings is needed",
            |value| match value {
                Value::String(text) => Some(vec![text.clone()]),
                Value::Array(items) => items
                    .iter()
                    .map(|item| item.as_str().map(str::to_owned))
                    .collect(),
                _ => None,
            },
        )
    }

    pub(crate) fn positive(&mut self, field: &str) -> Result<Option<usize>, PolicyError> {
        self.read(field, "a whole number from 1 to 4096 is needed", |value| {
            value
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
                .filter(|number| (1..=4096).contains(number))
        })
    }

    pub(crate) fn seed(&mut self, field: &str) -> Result<Option<u64>, PolicyError> {
        self.read(field, "a whole number from 0 is needed", Value::as_u64)
    }

    pub(crate) fn flag(&mut self, field: &str) -> Result<Option<bool>, PolicyError> {
        self.read(field, "true or false is needed", Value::as_bool)
    }

    /// Reads a duration in seconds, up to a day.
    pub(crate) fn seconds(&mut self, field: &str) -> Result<Option<Duration>, PolicyError> {
        self.read(
            field,
            "a number of seconds from 0 to 86400 is needed",
            |value| {
                value
                    .as_f64()
                    .filter(|seconds| (0.0..=86400.0).contains(seconds))
                    .map(Duration::from_secs_f64)
            },
        )
    }

    /// Reads a TCP port.
    pub(crate) fn port(&mut self, field: &str) -> Result<Option<u16>, PolicyError> {
        self.read(field, "a port from 1 to 65535 is needed", |value| {
            value
                .as_u64()
                .and_then(|port| u16::try_from(port).ok())
                .filter(|port| *port > 0)
        })
    }

    /// Reads height and width of pictures; Arena's files add the number of colour channels.
    pub(crate) fn edges(&mut self, field: &str) -> Result<Option<[usize; 2]>, PolicyError> {
        self.read(
            field,
            "height and width from 1 to 4096 are needed",
            |value| {
                let edge = |edge: &Value| {
                    edge.as_u64()
                        .filter(|edge| (1..=4096).contains(edge))
                        .map(|edge| edge as usize)
                };
                match &value.as_array()?[..] {
                    [height, width] => Some([edge(height)?, edge(width)?]),
                    [height, width, colours] if colours == 3 => Some([edge(height)?, edge(width)?]),
                    _ => None,
                }
            },
        )
    }

    /// Reads a map with string keys.
    pub(crate) fn object(
        &mut self,
        field: &str,
    ) -> Result<Option<Map<String, Value>>, PolicyError> {
        self.read(field, "a map is needed", |value| value.as_object().cloned())
    }

    /// Reads a string that must be one of `words`, and returns its value.
    pub(crate) fn one_of<T: Copy>(
        &mut self,
        field: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, PolicyError> {
        let known = words
            .iter()
            .map(|(word, _)| *word)
            .collect::<Vec<_>>()
            .join(", ");
        self.read(field, &format!("one of {known} is needed"), |value| {
            words
                .iter()
                .find(|(word, _)| value.as_str() == Some(word))
                .map(|(_, meaning)| *meaning)
        })
    }

    /// Reads how many actions of a chunk of `horizon` are executed.
    pub(crate) fn chunk_length(
        &mut self,
        horizon: usize,
        default: usize,
    ) -> Result<usize, PolicyError> {
        let chunk_length = self.positive("action_chunk_length")?.unwrap_or(default);
        within(horizon, chunk_length)?;
        Ok(chunk_length)
    }

    /// Reads how many actions of a chunk may be used and how many are executed, if the job says so.
    pub(crate) fn horizon_and_chunk_length(
        &mut self,
    ) -> Result<(Option<usize>, Option<usize>), PolicyError> {
        let (horizon, chunk_length) = (
            self.positive("action_horizon")?,
            self.positive("action_chunk_length")?,
        );
        if let (Some(horizon), Some(chunk_length)) = (horizon, chunk_length) {
            within(horizon, chunk_length)?;
        }
        Ok((horizon, chunk_length))
    }

    /// Returns an error for fields that were not read.
    pub(crate) fn finish(self) -> Result<(), PolicyError> {
        for layer in self.layers {
            let unread = layer
                .left
                .into_iter()
                .find(|(field, _)| !ELSEWHERE.contains(&field.as_str()));
            if let Some((field, value)) = unread {
                let found = Found {
                    file: layer.file,
                    value,
                };
                return Err(found.refuse(&field, "but this policy has no such field"));
            }
        }
        Ok(())
    }

    /// Reads a value that `convert` accepts; `wanted` describes the accepted values for errors.
    pub(crate) fn read<T>(
        &mut self,
        field: &str,
        wanted: &str,
        convert: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, PolicyError> {
        let Some(found) = self.take(field) else {
            return Ok(None);
        };
        convert(&found.value)
            .map(Some)
            .ok_or_else(|| found.refuse(field, wanted))
    }

    /// Takes the value with the highest precedence that is not null; lower layers' values of that
    /// name count as read.
    fn take(&mut self, field: &str) -> Option<Found> {
        let mut innermost = None;
        for layer in &mut self.layers {
            let value = layer
                .left
                .shift_remove(field)
                .filter(|value| !value.is_null());
            innermost = innermost.or_else(|| {
                value.map(|value| Found {
                    file: layer.file.clone(),
                    value,
                })
            });
        }
        innermost
    }
}

impl Found {
    fn refuse(&self, field: &str, wanted: &str) -> PolicyError {
        PolicyError::Argument {
            place: place(self.file.as_deref(), field),
            found: self.value.to_string(),
            wanted: wanted.to_owned(),
        }
    }
}

/// Returns an error if more actions of a chunk are to be executed than it may have.
fn within(horizon: usize, chunk_length: usize) -> Result<(), PolicyError> {
    if chunk_length <= horizon {
        return Ok(());
    }
    let wanted = format!("at most the action_horizon {horizon} is needed");
    Err(argument(
        "action_chunk_length",
        &chunk_length.to_string(),
        &wanted,
    ))
}

/// Returns an error about a field of the job.
pub(crate) fn argument(field: &str, found: &str, wanted: &str) -> PolicyError {
    PolicyError::Argument {
        place: place(None, field),
        found: found.to_owned(),
        wanted: wanted.to_owned(),
    }
}

/// Reads a YAML file that contains a map.
pub(crate) fn read_yaml(file: &Path) -> Result<Map<String, Value>, PolicyError> {
    let refuse = |reason: String| PolicyError::File {
        path: file.to_owned(),
        reason,
    };
    let text = fs::read_to_string(file).map_err(|err| refuse(err.to_string()))?;
    // Only true and false are booleans, because `y` is the name of a joint or an axis.
    let options = serde_saphyr::options! { strict_booleans: true };
    match serde_saphyr::from_str_with_options::<Value>(&text, options) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(refuse("a map of fields is needed".to_owned())),
        Err(err) => Err(refuse(err.to_string())),
    }
}

fn place(file: Option<&Path>, field: &str) -> String {
    match file {
        None => format!("`policy_config_dict.{field}`"),
        Some(file) => format!("`{}` field {field}", file.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(config: Value) -> Fields {
        let Value::Object(config) = config else {
            panic!("an object is meant")
        };
        Fields::of_job(&config)
    }

    #[test]
    fn y_is_a_name_and_true_is_true() {
        let (_folder, path) = file("joints: {x: 0, y: 1}\nnames: [x, y, no]\nload: True\n");
        let expected = json!({"joints": {"x": 0, "y": 1}, "names": ["x", "y", "no"], "load": true});
        assert_eq!(Value::Object(read_yaml(&path).unwrap()), expected);
    }

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.yaml");
        fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn the_job_wins_over_the_file() {
        let (_folder, path) = file("action_horizon: 16\nlanguage_instruction: lift\n");
        let mut fields = job(json!({"action_horizon": 8}));
        fields.under(&path).unwrap();
        assert_eq!(fields.positive("action_horizon").unwrap(), Some(8));
        assert_eq!(
            fields.string("language_instruction").unwrap().as_deref(),
            Some("lift")
        );
        assert!(fields.finish().is_ok());
    }

    #[test]
    fn a_wrong_field_of_the_file_is_named_with_the_file() {
        let (_folder, path) = file("action_horizon: sixteen\n");
        let mut fields = job(json!({}));
        fields.under(&path).unwrap();
        let text = fields.positive("action_horizon").unwrap_err().to_string();
        assert_eq!(
            text,
            format!(
                "`{}` field action_horizon is \"sixteen\", a whole number from 1 to 4096 is needed",
                path.display()
            )
        );
    }

    #[test]
    fn a_field_that_nobody_reads_is_refused_wherever_it_stands() {
        let (_folder, path) = file("horizon: 16\npolicy_device: cuda\n");
        let mut fields = job(json!({}));
        fields.under(&path).unwrap();
        assert!(
            fields
                .finish()
                .unwrap_err()
                .to_string()
                .ends_with("field horizon is 16, but this policy has no such field")
        );
    }

    #[test]
    fn what_is_no_yaml_is_refused_with_its_line() {
        let (_folder, path) = file("a: 1\nb: [1, 2\nc: 3\n");
        let text = read_yaml(&path).unwrap_err().to_string();
        assert!(
            text.contains("policy.yaml`: ") && text.contains("line"),
            "{text}"
        );
        let (_folder, path) = file("- 1\n");
        assert!(
            read_yaml(&path)
                .unwrap_err()
                .to_string()
                .ends_with("a map of fields is needed")
        );
    }

    #[test]
    fn a_path_in_a_file_is_found_beside_it() {
        let (folder, path) = file("joints: joints.yaml\nmodel_path: elsewhere\n");
        fs::write(folder.path().join("joints.yaml"), "").unwrap();
        let mut fields = job(json!({}));
        fields.under(&path).unwrap();
        assert_eq!(
            fields.path("joints").unwrap(),
            Some(folder.path().join("joints.yaml"))
        );
        assert_eq!(
            fields.path("model_path").unwrap(),
            Some(PathBuf::from("elsewhere"))
        );
    }
}
