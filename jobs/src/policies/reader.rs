//! Reads the settings of a policy one by one: known names with values of their kind; unknown names
//! are refused.
//!
//! The settings are in the job (`policy_config_dict`), and for some policies also in a YAML file
//! that the job names; the job takes precedence.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::policies::{PolicyType, Setting, ValueKind};

/// Why a setting of a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// A setting has a wrong name or value, or is missing.
    #[error("{place} is {found}, {wanted}")]
    Argument {
        /// Name of the setting, and the file that contains it.
        place: String,
        /// The setting's value.
        found: String,
        /// The accepted values, as a clause.
        wanted: String,
    },
    /// A file that a setting names cannot be used.
    #[error("`{}`: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        reason: String,
    },
    /// A policy reads a setting that its row does not have, or has with other values.
    #[error(
        "policy `{policy}` reads `{field}`, but its row in jobs/src/policies has no such setting"
    )]
    Unlisted {
        /// Name of the policy.
        policy: &'static str,
        /// Name of the setting.
        field: String,
    },
}

impl SettingError {
    /// Returns an error about a field of the job.
    pub fn argument(field: &str, found: &str, wanted: &str) -> Self {
        Self::Argument {
            place: place(None, field),
            found: found.to_owned(),
            wanted: wanted.to_owned(),
        }
    }
}

/// Reads the settings of one policy, whose row says which values each of them may have.
///
/// # Errors
/// All methods return [`SettingError::Argument`] for a wrong value, and [`SettingError::Unlisted`]
/// for a setting that the row does not have as such a value.
pub struct SettingsReader {
    policy: PolicyType,
    /// Layers in order of precedence: a field's value comes from the first layer that has it.
    layers: Vec<Layer>,
}

struct Layer {
    /// Path of the YAML file; `None` for the job.
    file: Option<PathBuf>,
    left: Map<String, Value>,
}

/// A value and the file that contains it.
struct GivenValue {
    file: Option<PathBuf>,
    value: Value,
}

impl SettingsReader {
    /// Reads the `policy_config_dict` of a job.
    pub fn new(policy: PolicyType, config: &Map<String, Value>) -> Self {
        let mut reader = Self {
            policy,
            layers: Vec::new(),
        };
        reader.add(None, config.clone());
        reader
    }

    /// Adds a YAML file with lower precedence than all layers so far.
    ///
    /// # Errors
    /// Returns [`SettingError::File`] if it cannot be read.
    pub fn under(&mut self, file: &Path) -> Result<(), SettingError> {
        let left = read_yaml(file)?;
        self.add(Some(file.to_owned()), left);
        Ok(())
    }

    /// Adds a layer without the fields that have no effect.
    fn add(&mut self, file: Option<PathBuf>, mut left: Map<String, Value>) {
        let row = self.policy.row();
        left.retain(|name, _| {
            row.setting(name)
                .is_none_or(|setting| setting.kind != ValueKind::Unused)
        });
        self.layers.push(Layer { file, left });
    }

    /// Returns whether the policy has a setting of this name, for code that several policies share.
    pub fn has_setting(&self, field: &str) -> bool {
        self.policy.row().setting(field).is_some()
    }

    /// Reads a string.
    pub fn string(&mut self, field: &str) -> Result<Option<String>, SettingError> {
        self.read(field, |value| value.as_str().map(str::to_owned))
    }

    /// Reads the path of a file or folder. A path in a YAML file is resolved against the working
    /// directory first, then against that file's directory.
    pub fn path(&mut self, field: &str) -> Result<Option<PathBuf>, SettingError> {
        let setting = self.setting(field)?;
        let Some(given) = self.take(setting)? else {
            return Ok(None);
        };
        let Some(path) = given.value.as_str().map(PathBuf::from) else {
            return Err(self.unlisted(field));
        };
        let beside = given
            .file
            .as_deref()
            .and_then(Path::parent)
            .map(|folder| folder.join(&path));
        Ok(Some(
            beside
                .filter(|beside| !path.exists() && beside.exists())
                .unwrap_or(path),
        ))
    }

    /// Reads a string or a list of strings.
    pub fn strings(&mut self, field: &str) -> Result<Option<Vec<String>>, SettingError> {
        self.read(field, |value| match value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(items) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect(),
            _ => None,
        })
    }

    /// Reads a whole number of things.
    pub fn count(&mut self, field: &str) -> Result<Option<usize>, SettingError> {
        self.read(field, |value| {
            value
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
        })
    }

    /// Reads a whole number.
    pub fn whole(&mut self, field: &str) -> Result<Option<u64>, SettingError> {
        self.read(field, Value::as_u64)
    }

    /// Reads a number.
    pub fn number(&mut self, field: &str) -> Result<Option<f64>, SettingError> {
        self.read(field, Value::as_f64)
    }

    /// Reads `true` or `false`.
    pub fn flag(&mut self, field: &str) -> Result<Option<bool>, SettingError> {
        self.read(field, Value::as_bool)
    }

    /// Reads a duration in seconds.
    pub fn seconds(&mut self, field: &str) -> Result<Option<Duration>, SettingError> {
        self.read(field, |value| {
            value
                .as_f64()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        })
    }

    /// Reads a TCP port.
    pub fn port(&mut self, field: &str) -> Result<Option<u16>, SettingError> {
        self.read(field, |value| {
            value.as_u64().and_then(|port| u16::try_from(port).ok())
        })
    }

    /// Reads height and width of pictures, in pixels.
    pub fn edges(&mut self, field: &str) -> Result<Option<[usize; 2]>, SettingError> {
        self.read(field, |value| {
            let edges = value.as_array()?;
            let edge = |nth: usize| usize::try_from(edges.get(nth)?.as_u64()?).ok();
            Some([edge(0)?, edge(1)?])
        })
    }

    /// Reads a map with string keys.
    pub fn map(&mut self, field: &str) -> Result<Option<Map<String, Value>>, SettingError> {
        self.read(field, |value| value.as_object().cloned())
    }

    /// Reads one of the words of the row, and returns what it means. `words` has a meaning for each
    /// of them, in their order.
    pub fn one_of<T: Copy>(
        &mut self,
        field: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, SettingError> {
        let has_all = match self.setting(field)?.kind {
            ValueKind::OneOf(listed) => listed.iter().eq(words.iter().map(|(word, _)| word)),
            _ => false,
        };
        if !has_all {
            return Err(self.unlisted(field));
        }
        self.read(field, |value| {
            words
                .iter()
                .find(|(word, _)| value.as_str() == Some(word))
                .map(|(_, meaning)| *meaning)
        })
    }

    /// Reads how many actions of a chunk of `horizon` are executed.
    pub fn chunk_length(&mut self, horizon: usize, default: usize) -> Result<usize, SettingError> {
        let chunk_length = self.count("action_chunk_length")?.unwrap_or(default);
        within(horizon, chunk_length)?;
        Ok(chunk_length)
    }

    /// Reads how many actions of a chunk may be used and how many are executed, if the job says so.
    pub fn horizon_and_chunk_length(
        &mut self,
    ) -> Result<(Option<usize>, Option<usize>), SettingError> {
        let (horizon, chunk_length) = (
            self.count("action_horizon")?,
            self.count("action_chunk_length")?,
        );
        if let (Some(horizon), Some(chunk_length)) = (horizon, chunk_length) {
            within(horizon, chunk_length)?;
        }
        Ok((horizon, chunk_length))
    }

    /// Reads a setting, whatever its kind, and returns whether it has a value.
    pub fn is_given(&mut self, field: &str) -> Result<bool, SettingError> {
        let setting = self.setting(field)?;
        Ok(self.take(setting)?.is_some())
    }

    /// Returns an error for a setting that must be given and is not.
    pub fn missing(&self, field: &str) -> SettingError {
        let row = self.policy.row();
        match row.setting(field).and_then(|setting| setting.required) {
            Some(wanted) => SettingError::argument(field, "missing", wanted),
            None => self.unlisted(field),
        }
    }

    /// Returns an error for fields that were not read.
    pub fn finish(self) -> Result<(), SettingError> {
        for layer in self.layers {
            if let Some((field, value)) = layer.left.into_iter().next() {
                let file = layer.file;
                let given = GivenValue { file, value };
                return Err(given.refuse(&field, "but this policy has no such field"));
            }
        }
        Ok(())
    }

    fn read<T>(
        &mut self,
        field: &str,
        convert: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, SettingError> {
        let setting = self.setting(field)?;
        match self.take(setting)? {
            None => Ok(None),
            Some(given) => convert(&given.value)
                .map(Some)
                .ok_or_else(|| self.unlisted(field)),
        }
    }

    fn setting(&self, field: &str) -> Result<&'static Setting, SettingError> {
        let setting = self.policy.row().setting(field);
        setting.ok_or_else(|| self.unlisted(field))
    }

    /// Takes the value with the highest precedence that is not null, if the setting may have it;
    /// lower layers' values of that name count as read.
    fn take(&mut self, setting: &Setting) -> Result<Option<GivenValue>, SettingError> {
        let mut first = None;
        for layer in &mut self.layers {
            let value = layer
                .left
                .shift_remove(setting.name)
                .filter(|value| !value.is_null());
            first = first.or_else(|| {
                value.map(|value| GivenValue {
                    file: layer.file.clone(),
                    value,
                })
            });
        }
        match first {
            Some(given) if !setting.kind.accepts(&given.value) => {
                Err(given.refuse(setting.name, &setting.kind.wanted()))
            }
            given => Ok(given),
        }
    }

    fn unlisted(&self, field: &str) -> SettingError {
        SettingError::Unlisted {
            policy: self.policy.name(),
            field: field.to_owned(),
        }
    }
}

impl GivenValue {
    fn refuse(&self, field: &str, wanted: &str) -> SettingError {
        SettingError::Argument {
            place: place(self.file.as_deref(), field),
            found: self.value.to_string(),
            wanted: wanted.to_owned(),
        }
    }
}

/// Returns an error if more actions of a chunk are to be executed than it may have.
fn within(horizon: usize, chunk_length: usize) -> Result<(), SettingError> {
    if chunk_length <= horizon {
        return Ok(());
    }
    let wanted = format!("expected at most the action_horizon {horizon}");
    Err(SettingError::argument(
        "action_chunk_length",
        &chunk_length.to_string(),
        &wanted,
    ))
}

/// Reads a YAML file that contains a map.
///
/// # Errors
/// Returns [`SettingError::File`] if it cannot be read or is no map.
pub fn read_yaml(file: &Path) -> Result<Map<String, Value>, SettingError> {
    let refuse = |reason: String| SettingError::File {
        path: file.to_owned(),
        reason,
    };
    let text = fs::read_to_string(file).map_err(|err| refuse(err.to_string()))?;
    // Only true and false are booleans, because `y` is the name of a joint or an axis.
    let options = serde_saphyr::options! { strict_booleans: true };
    match serde_saphyr::from_str_with_options::<Value>(&text, options) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(refuse("expected a map of fields".to_owned())),
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

    fn job(config: Value) -> SettingsReader {
        let Value::Object(config) = config else {
            panic!("an object is meant")
        };
        SettingsReader::new(PolicyType::Gr00t, &config)
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
        assert_eq!(fields.count("action_horizon").unwrap(), Some(8));
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
        let text = fields.count("action_horizon").unwrap_err().to_string();
        assert_eq!(
            text,
            format!(
                "`{}` field action_horizon is \"sixteen\", expected a whole number from 1 to 4096",
                path.display()
            )
        );
    }

    #[test]
    fn a_field_that_nobody_reads_is_refused_wherever_it_stands() {
        let (_folder, path) = file("horizon: 16\npolicy_device: cuda\n");
        let mut fields = job(json!({}));
        fields.under(&path).unwrap();
        let told = "field horizon is 16, but this policy has no such field";
        assert!(fields.finish().unwrap_err().to_string().ends_with(told));
    }

    #[test]
    fn what_is_no_yaml_is_refused_with_its_line() {
        let (_folder, path) = file("a: 1\nb: [1, 2\nc: 3\n");
        let text = read_yaml(&path).unwrap_err().to_string();
        assert!(text.contains("policy.yaml`: "), "{text}");
        assert!(text.contains("line"), "{text}");
        let (_folder, path) = file("- 1\n");
        let told = "expected a map of fields";
        assert!(read_yaml(&path).unwrap_err().to_string().ends_with(told));
    }

    #[test]
    fn a_path_in_a_file_is_found_beside_it() {
        let (folder, path) =
            file("policy_joints_config_path: joints.yaml\nmodel_path: elsewhere\n");
        fs::write(folder.path().join("joints.yaml"), "").unwrap();
        let mut fields = job(json!({}));
        fields.under(&path).unwrap();
        let found = fields.path("policy_joints_config_path").unwrap();
        assert_eq!(found, Some(folder.path().join("joints.yaml")));
        let shown = fields.path("model_path").unwrap();
        assert_eq!(shown, Some(PathBuf::from("elsewhere")));
    }
}
