//! Memory of environments as measured by short runs: a line through two numbers of environments.

use std::path::{Path, PathBuf};

use jobs::bytes::ByteSize;
use jobs::environments::DECLARED_MEMORY;
use jobs::files;
use jobs::job::Job;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Schema of the file of measurements.
pub const SCHEMA: &str = "rrun/memory/1";

/// Maximum size of a file of measurements, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// All measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Schema of the file, [`SCHEMA`].
    pub schema: String,
    /// One entry for each environment with its arguments.
    pub environments: Vec<MeasuredEnvironment>,
}

/// The measured memory of one environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredEnvironment {
    /// Registered name of the environment.
    pub environment: String,
    /// Its other arguments.
    pub env_args: Map<String, Value>,
    /// Whether cameras are enabled; `None` if the job does not say.
    pub enable_cameras: Option<bool>,
    /// Numbers of environments that were measured.
    pub num_envs: Vec<usize>,
    /// Host memory: the rank and the environment processes together.
    pub host: LinearMemory,
    /// GPU memory; `None` without a GPU.
    pub gpu: Option<LinearMemory>,
}

/// A linear model of memory: `base + slope × num_envs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinearMemory {
    /// Bytes without an environment.
    pub base: ByteSize,
    /// Bytes per environment.
    pub slope: ByteSize,
}

/// Why a file of measurements is refused.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredError {
    /// The file cannot be read.
    #[error("cannot read measurements `{}`: {err}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The error of the file system.
        err: std::io::Error,
    },
    /// The file has no measurements.
    #[error("`{}` has no measurements of `rrun fit --probe`: {reason}", path.display())]
    Syntax {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl LinearMemory {
    /// Returns the line through two measurements of (num_envs, bytes). If more environments took
    /// less memory, that is noise: then all memory is `base`.
    pub fn through(few: (usize, u64), many: (usize, u64)) -> Self {
        let ((few_envs, few_bytes), (many_envs, many_bytes)) = if few.0 <= many.0 {
            (few, many)
        } else {
            (many, few)
        };
        let slope = many_bytes.saturating_sub(few_bytes) / (many_envs - few_envs).max(1) as u64;
        let base = if slope == 0 {
            few_bytes.max(many_bytes)
        } else {
            few_bytes
        };
        let base = base.saturating_sub(slope.saturating_mul(few_envs as u64));
        Self {
            base: ByteSize(base),
            slope: ByteSize(slope),
        }
    }

    /// Returns the bytes of `num_envs` environments.
    pub fn at(self, num_envs: usize) -> u64 {
        self.base
            .0
            .saturating_add(self.slope.0.saturating_mul(num_envs as u64))
    }
}

impl Measured {
    /// Reads a file of measurements.
    ///
    /// # Errors
    /// Returns [`MeasuredError`] if the file cannot be read or has no measurements.
    pub fn read(path: &Path) -> Result<Self, MeasuredError> {
        let read = |err| MeasuredError::Read {
            path: path.to_owned(),
            err,
        };
        let refuse = |reason: String| MeasuredError::Syntax {
            path: path.to_owned(),
            reason,
        };
        let text = files::read(path, MAX_BYTES).map_err(read)?;
        let found: Self = serde_json::from_slice(&text).map_err(|err| refuse(err.to_string()))?;
        if found.schema == SCHEMA {
            return Ok(found);
        }
        Err(refuse(format!(
            "its schema is `{}`, expected `{SCHEMA}`",
            found.schema
        )))
    }

    /// Returns the measurement of a job's environment with the same arguments.
    pub fn find(&self, job: &Job) -> Option<&MeasuredEnvironment> {
        self.environments.iter().find(|entry| entry.is_of(job))
    }

    /// Adds an entry, which replaces an older one of the same environment.
    pub fn add(&mut self, entry: MeasuredEnvironment) {
        SCHEMA.clone_into(&mut self.schema);
        let same = |other: &MeasuredEnvironment| {
            (&other.environment, &other.env_args, other.enable_cameras)
                == (&entry.environment, &entry.env_args, entry.enable_cameras)
        };
        self.environments.retain(|other| !same(other));
        self.environments.push(entry);
    }
}

impl MeasuredEnvironment {
    /// Creates the entry of a job's environment from runs with two numbers of environments.
    pub fn new(
        job: &Job,
        num_envs: [usize; 2],
        host: LinearMemory,
        gpu: Option<LinearMemory>,
    ) -> Self {
        Self {
            environment: job.environment.clone(),
            env_args: arguments(job),
            enable_cameras: job.enable_cameras,
            num_envs: num_envs.to_vec(),
            host,
            gpu,
        }
    }

    /// Returns whether the entry is about a job's environment.
    pub fn is_of(&self, job: &Job) -> bool {
        self.environment == job.environment
            && self.enable_cameras == job.enable_cameras
            && self.env_args == arguments(job)
    }
}

/// Returns the arguments that distinguish environments of the same name; their declared memory does
/// not.
fn arguments(job: &Job) -> Map<String, Value> {
    job.env_args
        .iter()
        .filter(|(name, _)| *name != DECLARED_MEMORY)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn job(mut args: Value) -> Job {
        args["environment"] = json!("reach");
        jobs::samples::job(json!({"arena_env_args": args}))
    }

    /// Returns measurements of a job with one and with `most` environments.
    fn measured(args: Value, most: usize) -> MeasuredEnvironment {
        MeasuredEnvironment::new(&job(args), [1, most], LinearMemory::default(), None)
    }

    #[test]
    fn a_line_goes_through_both_measurements() {
        let line = LinearMemory::through((1, 700), (4, 1000));
        assert_eq!(line.base.0, 600);
        assert_eq!(line.slope.0, 100);
        assert_eq!(line.at(1), 700);
        assert_eq!(line.at(4), 1000);
        assert_eq!(line.at(8), 1400);
        assert_eq!(LinearMemory::through((4, 1000), (1, 700)), line);
        let wanted = LinearMemory {
            base: ByteSize(900),
            slope: ByteSize(0),
        };
        assert_eq!(LinearMemory::through((1, 900), (4, 700)), wanted);
    }

    #[test]
    fn an_entry_is_found_by_the_arguments_that_matter() {
        let mut all = Measured::default();
        all.add(measured(json!({"camera_height": 64}), 4));
        let has = |args: Value| all.find(&job(args)).is_some();
        assert!(has(
            json!({"camera_height": 64, "env_memory_gb": 2.0, "num_envs": 8})
        ));
        assert!(!has(json!({"camera_height": 128})));
        assert!(!has(json!({"camera_height": 64, "enable_cameras": true})));
        all.add(measured(json!({"camera_height": 64}), 8));
        assert_eq!(all.environments.len(), 1);
        assert_eq!(all.environments[0].num_envs, [1, 8]);
    }

    #[test]
    fn another_file_is_refused_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.json");
        let refusal = || Measured::read(&path).unwrap_err().to_string();
        assert!(refusal().starts_with("cannot read measurements"));
        for text in ["{}", "[]", "no", r#"{"schema": "x", "environments": []}"#] {
            std::fs::write(&path, text).unwrap();
            assert!(refusal().contains("has no measurements of `rrun fit --probe`"));
        }
        let mut all = Measured::default();
        all.add(measured(json!({}), 4));
        std::fs::write(&path, serde_json::to_vec(&all).unwrap()).unwrap();
        assert_eq!(Measured::read(&path).unwrap(), all);
    }

    proptest! {
        #[test]
        fn a_line_never_panics_and_never_falls(
            few in (0_usize..5000, any::<u64>()), many in (0_usize..5000, any::<u64>()), envs in 0_usize..10000
        ) {
            let line = LinearMemory::through(few, many);
            prop_assert!(line.at(envs + 1) >= line.at(envs));
        }
    }
}
