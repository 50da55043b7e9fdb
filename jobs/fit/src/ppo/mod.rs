//! Checks the sizes of a PPO training with Brax, given by a YAML file of WildRobot: whether they
//! divide evenly, whether they fit into memory, and what would.
//!
//! ```text
//! preset ─► FILE.yaml ─► --set a.b=c ─► merged ─► Sizes
//!   ├─ rules: batch_size × num_minibatches % num_envs == 0 ─► Changes
//!   └─ vram: 3 GB + 5.9 MB × num_envs ─► largest num_envs
//! ```
//! `rrun` trains nothing; it finds such errors before a night of training is lost. Sources: s003
//! (WildRobot's GPU memory guide), WildRobot's `playground/*.yaml`,
//! `brax/training/agents/ppo/train.py`.

mod guide;
mod keys;
mod preset;
mod rules;
mod vram;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

pub use guide::{GuideRow, rows};
pub use preset::Preset;
pub use rules::{BrokenRule, PpoSizes, SizeChange};
pub use vram::{bytes, most_envs};

use jobs::config::{Override, tree};
use jobs::refusal::Refusal;

/// Maximum size that is accepted, so that products of two fit into 64 bits with a large margin.
const MOST: u64 = 1 << 24;

/// The section that a file of a training must have.
const PPO: &str = "ppo";

/// The configuration of a training, merged from preset, file and command line.
#[derive(Clone, Debug, PartialEq)]
pub struct PpoTraining {
    /// Path of the file; `None` without one.
    pub file: Option<PathBuf>,
    /// The `--set` options of the command line.
    pub overrides: Vec<Override>,
    /// The merged configuration.
    pub config: Value,
    /// Names in the file that look misspelled.
    pub notes: Vec<String>,
}

/// Why a training is refused.
#[derive(Debug, thiserror::Error)]
pub enum PpoError {
    /// The file cannot be read or parsed.
    #[error(transparent)]
    File(#[from] Refusal),
    /// `--set` names an unknown setting.
    #[error("--set {key}: unknown setting; {near}")]
    Unknown {
        /// The name as given.
        key: String,
        /// The nearest known names.
        near: String,
    },
    /// A size is not a positive whole number in range.
    #[error("{key} is {found}, expected a whole number from 1 to {MOST}")]
    Size {
        /// Name of the setting.
        key: String,
        /// The value found there.
        found: String,
    },
    /// The file has no section of a training.
    #[error("`{file}` has no section `{PPO}`, so it is not a PPO training of Brax; {hint}")]
    NoTraining {
        /// Path of the file.
        file: String,
        /// What the file may be instead, or how to begin one.
        hint: &'static str,
    },
    /// A section is not a mapping.
    #[error("`{section}` is {found}, expected a mapping")]
    Section {
        /// Name of the section.
        section: String,
        /// The value found there.
        found: String,
    },
}

impl PpoTraining {
    /// Reads a file, merges it over a preset, and applies the settings of the command line.
    ///
    /// # Errors
    /// Returns [`PpoError`] for the first problem found.
    pub fn read(
        file: Option<&Path>,
        preset: Option<Preset>,
        overrides: &[Override],
    ) -> Result<Self, PpoError> {
        let own = file
            .map(|path| tree::parse(path, &tree::read(path)?))
            .transpose()?;
        if let (Some(file), Some(own)) = (file, &own) {
            check_training(file, own, preset)?;
        }
        Self::new(file, own.unwrap_or_else(|| json!({})), preset, overrides)
    }

    fn new(
        file: Option<&Path>,
        own: Value,
        preset: Option<Preset>,
        sets: &[Override],
    ) -> Result<Self, PpoError> {
        let base = preset.map_or_else(|| Value::Object(Map::new()), Preset::config);
        let notes = keys::doubtful(&own);
        let below = tree::merge(base, own);
        let mut config = below;
        for section in ["ppo", "network", "training"] {
            if let Some(found) = config
                .get(section)
                .filter(|value| !value.is_object() && !value.is_null())
            {
                return Err(PpoError::Section {
                    section: section.to_owned(),
                    found: found.to_string(),
                });
            }
        }
        for set in sets {
            keys::check(&config, set)?;
            config = tree::merge(config, set.tree());
        }
        let training = Self {
            file: file.map(Path::to_owned),
            overrides: sets.to_vec(),
            config,
            notes,
        };
        training.sizes(1).map(|_| training)
    }

    /// Returns the sizes that must divide each other, with Brax's defaults for those that are not
    /// set.
    ///
    /// # Errors
    /// Returns [`PpoError::Size`].
    pub fn sizes(&self, devices: u64) -> Result<PpoSizes, PpoError> {
        let size = |name: &str, default: u64| {
            let key = format!("ppo.{name}");
            match self.config.get("ppo").and_then(|ppo| ppo.get(name)) {
                None | Some(Value::Null) => Ok(default),
                Some(value) => match value.as_u64() {
                    Some(size @ 1..=MOST) => Ok(size),
                    _ => Err(PpoError::Size {
                        key,
                        found: value.to_string().chars().take(80).collect(),
                    }),
                },
            }
        };
        Ok(PpoSizes {
            num_envs: size("num_envs", 1)?,
            batch_size: size("batch_size", 32)?,
            num_minibatches: size("num_minibatches", 16)?,
            devices: devices.max(1),
        })
    }

    /// Returns the record that WildRobot's training keeps of its configuration: `{config_file,
    /// overrides, final_config}`.
    pub fn effective(&self) -> Value {
        let overrides: Map<String, Value> = self
            .overrides
            .iter()
            .map(|set| (set.name(), set.value.clone()))
            .collect();
        json!({"config_file": self.file, "overrides": overrides, "final_config": self.config})
    }
}

/// Refuses a file without a training: its sizes would all be Brax's defaults, which are valid. With
/// a preset, any section of the preset is enough.
fn check_training(file: &Path, own: &Value, preset: Option<Preset>) -> Result<(), PpoError> {
    let is_section = |name: &str| {
        name == PPO || preset.is_some_and(|preset| preset.config().get(name).is_some())
    };
    let names: Vec<&str> = own
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    if names.iter().any(|name| is_section(name)) {
        return Ok(());
    }
    let hint = match (names.contains(&"jobs"), names.contains(&"num_envs")) {
        (true, _) => "`--jobs` takes a jobs file",
        (_, true) => "sizes belong below `ppo:`",
        _ => "such a file starts with `ppo: {num_envs: …, batch_size: …, num_minibatches: …}`",
    };
    Err(PpoError::NoTraining {
        file: file.display().to_string(),
        hint,
    })
}

#[cfg(test)]
mod tests;
