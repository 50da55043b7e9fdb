//! The settings of a package.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::policy::{PolicyError, argument};
use jobs::policies::{PolicyType, SettingsReader};

/// The checked settings of a job's package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct ExportedSettings {
    pub(super) model_path: PathBuf,
    pub(super) tokenizer_path: Option<PathBuf>,
    /// Names of the environment's cameras by those of the package, where they differ.
    pub(super) cameras: BTreeMap<String, String>,
    /// The same of state vectors.
    pub(super) states: BTreeMap<String, String>,
    /// Part of the seed of the noise.
    pub(super) seed: u64,
    /// Number of actions of a chunk that are executed.
    pub(super) chunk_length: Option<usize>,
    /// Whether batches are captured on a GPU.
    pub(super) captures: bool,
}

impl ExportedSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// Returns [`PolicyError::Setting`] with the name of the field, and [`PolicyError::File`] for a
    /// missing file.
    pub(in crate::policy) fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let mut fields = SettingsReader::new(PolicyType::Exported, config);
        let model_path = fields.path("model_path")?;
        let settings = Self {
            model_path: model_path.ok_or_else(|| fields.missing("model_path"))?,
            tokenizer_path: fields.path("tokenizer_path")?,
            cameras: names("cameras", fields.map("cameras")?)?,
            states: names("states", fields.map("states")?)?,
            seed: fields.whole("seed")?.unwrap_or(0),
            chunk_length: fields.count("action_chunk_length")?,
            captures: fields.flag("cuda_graphs")?.unwrap_or(true),
        };
        fields.finish()?;
        for path in [Some(&settings.model_path), settings.tokenizer_path.as_ref()]
            .into_iter()
            .flatten()
        {
            if !path.is_file() {
                return Err(PolicyError::File {
                    path: path.clone(),
                    reason: "there is no such file".to_owned(),
                });
            }
        }
        Ok(settings)
    }

    /// Returns an error about the package.
    pub(super) fn file_error(&self, reason: &str) -> PolicyError {
        PolicyError::File {
            path: self.model_path.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// Reads a map of names.
fn names(
    field: &str,
    map: Option<Map<String, Value>>,
) -> Result<BTreeMap<String, String>, PolicyError> {
    let mut names = BTreeMap::new();
    for (name, value) in map.unwrap_or_default() {
        let Value::String(other) = value else {
            let field = format!("{field}.{name}");
            return Err(argument(&field, &value.to_string(), "expected a name"));
        };
        names.insert(name, other);
    }
    Ok(names)
}
