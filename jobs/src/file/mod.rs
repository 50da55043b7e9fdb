//! Parses Arena's `jobs.json` (all spellings of generations A to C) into [`Job`]s; errors name
//! file, job and field. A YAML file is an Experiment, see [`crate::experiment`].
//!
//! Unknown fields inside `arena_env_args`, `policy_config_dict` and `variations` belong to the
//! environment or the policy and are kept. Anywhere else they are refused with the nearest known
//! name. A job with variants becomes several jobs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::experiment::{Experiment, is_experiment};
use crate::fields::{FieldError, FileFields};
use crate::files;
use crate::installed;
use crate::job::{Job, JobIndex, Status};
use crate::layout::RunFolder;
use crate::model_server::{self, ModelServer};
use crate::refusal::Refusal;
use crate::sha256;
use variations::{VariantBytes, Variations};

mod entry;
mod latency;
pub mod rollout;
mod suite;
mod variations;
pub(crate) mod video;

pub use entry::{entry, jobs_file};

/// Maximum size of a jobs file in bytes; the largest known real one has 509 KB.
const MAX_BYTES: u64 = 64 << 20;

/// The byte order mark that Windows editors write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Maximum number of copies of an environment in one rank; each has its own simulator and video.
pub(crate) const MAX_ENVS: u64 = 4096;

/// A jobs file that was read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFile {
    /// Path of the file.
    pub path: PathBuf,
    /// SHA-256 of the file as hex digits, which identifies a run. Of an Experiment, and with
    /// `--config`, SHA-256 of the resulting jobs.
    pub sha256: String,
    /// Jobs in file order, at least one.
    pub jobs: Vec<Job>,
    /// The model server that `rrun` keeps running beside the ranks of a node.
    pub model_server: Option<ModelServer>,
}

impl JobFile {
    /// Reads and checks a jobs file.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        if is_experiment(path) {
            let jobs = value(path)?;
            return Self::new(path, identity(&jobs), &jobs);
        }
        let text = read(path)?;
        Self::new(path, sha256::of(&text), &json(path, &text)?)
    }

    /// Checks the parsed JSON of a jobs file.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn new(path: &Path, sha256: String, value: &Value) -> Result<Self, Refusal> {
        let (jobs, model_server) = whole(value).map_err(|err| Refusal::at(quoted(path), err))?;
        Ok(Self {
            path: path.to_owned(),
            sha256,
            jobs,
            model_server,
        })
    }
}

/// Reads a jobs file, or an Experiment, in the form of a jobs file, unchecked.
///
/// # Errors
/// Refuses a file that cannot be read.
pub fn value(path: &Path) -> Result<Value, Refusal> {
    if is_experiment(path) {
        let variable = |name: &str| std::env::var(name).ok();
        return Ok(Experiment::read(path, &[], &variable)?.jobs);
    }
    json(path, &read(path)?)
}

/// Returns the jobs of a jobs file that was read with [`value`] and may have been changed.
///
/// # Errors
/// Refuses the first problem found.
pub fn checked(path: &Path, value: &Value) -> Result<Vec<Job>, Refusal> {
    Ok(JobFile::new(path, String::new(), value)?.jobs)
}

/// Returns what identifies a run whose jobs are not the bytes of a file: SHA-256 of the jobs,
/// without their placement.
pub(crate) fn identity(file: &Value) -> String {
    let mut jobs = file.clone();
    if let Value::Object(file) = &mut jobs {
        file.shift_remove(model_server::FIELD);
    }
    sha256::of(jobs.to_string())
}

/// Reads the bytes of a jobs file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Refusal> {
    let text = files::read(&installed::found_path(path), MAX_BYTES);
    text.map_err(|err| Refusal::at(format_args!("cannot read jobs file {}", quoted(path)), err))
}

/// Parses the JSON of a jobs file.
pub(crate) fn json(path: &Path, text: &[u8]) -> Result<Value, Refusal> {
    let json = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut value = serde_json::from_slice(json).map_err(|err| {
        let (line, column) = (err.line(), err.column());
        Refusal::at(
            format_args!("{} line {line} column {column}", quoted(path)),
            err,
        )
    })?;
    installed::find_all(&mut value);
    Ok(value)
}

fn quoted(path: &Path) -> String {
    format!("`{}`", path.display())
}

/// Converts parsed JSON to jobs.
///
/// # Errors
/// Returns [`FieldError`] for the first problem found.
pub fn parse(file: &Value) -> Result<Vec<Job>, FieldError> {
    Ok(whole(file)?.0)
}

/// Converts everything in a jobs file: the jobs and the model server.
fn whole(file: &Value) -> Result<(Vec<Job>, Option<ModelServer>), FieldError> {
    let mut top = FileFields::new("top level", file)?;
    let entries = match top.take("jobs") {
        Some(Value::Array(entries)) => entries,
        other => return Err(top.wrong("jobs", other, "expected a list of jobs")),
    };
    let model_server = model_server::take(&mut top)?;
    top.finish(&["jobs", model_server::FIELD])?;
    if entries.is_empty() {
        return Err(top.refuse("jobs", "the list is empty, expected at least one job"));
    }
    Ok((self::jobs(entries)?, model_server))
}

/// Converts the entries of jobs, and makes the jobs of their variants.
pub(crate) fn jobs(entries: &[Value]) -> Result<Vec<Job>, FieldError> {
    let mut jobs = Vec::new();
    let mut bytes = VariantBytes::default();
    for (index, entry) in entries.iter().enumerate() {
        let (job, variations) = job(index, entry, &mut bytes)?;
        jobs.append(&mut variations::expanded(job, variations, &mut bytes)?);
    }
    for (index, job) in jobs.iter_mut().enumerate() {
        job.index = JobIndex(index);
    }
    refuse_duplicates(&jobs)?;
    Ok(jobs)
}

fn refuse_duplicates(jobs: &[Job]) -> Result<(), FieldError> {
    let mut seen = HashMap::new();
    for job in jobs {
        if let Some(JobIndex(first)) = seen.insert(job.name.to_lowercase(), job.index) {
            let whose = job.variant.as_ref().map_or_else(String::new, |variant| {
                format!(" of variant `{}` of `{}`", variant.name, variant.of)
            });
            return Err(FieldError {
                place: format!("job {} field name", job.index.0),
                unknown: None,
                reason: format!(
                    "`{}`{whose} is also the name of job {first}; names are file names and must \
                     differ",
                    job.name
                ),
            });
        }
    }
    Ok(())
}

/// The fields of a job.
pub(crate) const FIELDS: &[&str] = &[
    "name",
    "arena_env_args",
    "policy_type",
    "policy_config_dict",
    "policy_args",
    "num_steps",
    "num_episodes",
    "num_rebuilds",
    "language_instruction",
    "suite",
    "variations",
    "variant",
    "status",
    "seed",
    "total_num_envs",
    "group_size",
    "auto_reset",
    "ignore_terminations",
    "max_steps_per_rollout_epoch",
    "rollout_epoch",
    "pipeline_stage_num",
    "video_cfg",
    "latency",
];

/// Reads one entry of the list; the job does not have its variations yet.
fn job(
    index: usize,
    entry: &Value,
    bytes: &mut VariantBytes,
) -> Result<(Job, Variations), FieldError> {
    let mut fields = FileFields::new(&format!("job {index}"), entry)?;
    fields.know(FIELDS);
    let name = fields.string("name")?;
    fields.rename(&format!("job {index} ({name})"));
    check_name(&name).map_err(|err| fields.refuse("name", &err.to_string()))?;
    let mut env = FileFields::new(
        &fields.place("arena_env_args"),
        fields.require("arena_env_args")?,
    )?;
    let environment = env.string("environment")?;
    let num_envs = env.at_most("num_envs", MAX_ENVS)?;
    let enable_cameras = env.bool("enable_cameras")?;
    let policy_type = fields.string("policy_type")?;
    let policy_config = policy_config(&mut fields)?;
    let num_rebuilds = fields
        .at_most("num_rebuilds", rollout::MAX_EPISODES)?
        .unwrap_or(1);
    let sharing = rollout::sharing(&mut fields, num_envs)?;
    let num_envs = sharing.map_or(num_envs.unwrap_or(1) as usize, |sharing| {
        sharing.total_num_envs
    });
    let said = rollout::rollout(&mut fields)?;
    let length = rollout::length(&mut fields, &said, num_envs, num_rebuilds)?;
    rollout::check_chunks(&fields, &said, &policy_config)?;
    let job = Job {
        index: JobIndex(index),
        name,
        environment,
        num_envs,
        sharing,
        enable_cameras,
        env_args: env.rest(),
        policy_type,
        policy_config,
        length,
        rollout: said.settings,
        latency: latency::latency(&mut fields)?,
        video: video::settings(&mut fields)?,
        num_rebuilds,
        only: None,
        language_instruction: fields.optional_string("language_instruction")?,
        suite: suite::suite(&mut fields)?,
        variations: Map::new(),
        variant: variations::of_control(&mut fields)?,
        seed: fields.whole("seed")?,
        status: status(&mut fields)?,
    };
    let variations = variations::take(&mut fields, bytes)?;
    fields.finish(FIELDS)?;
    Ok((job, variations))
}

/// Checks that a name can be a file name: no separator, not hidden, short enough for
/// `dataset_<name>_rank<r>.hdf5`.
///
/// # Errors
/// Refuses it with the reason why it cannot.
fn check_name(name: &str) -> Result<(), Refusal> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > 200 {
        "it is longer than 200 bytes"
    } else if name.starts_with('.') {
        "it starts with a dot"
    } else if RunFolder::has_own(&name.to_lowercase()) {
        "the run folder has a file or folder of that name"
    } else if name.contains(|letter: char| letter == '/' || letter == '\\' || letter.is_control()) {
        "it has a path separator or a control character"
    } else {
        return Ok(());
    };
    let name = name.escape_debug();
    Err(Refusal::new(format_args!(
        "`{name}` cannot be a file name: {reason}"
    )))
}

fn policy_config(fields: &mut FileFields) -> Result<Map<String, Value>, FieldError> {
    match (
        fields.object("policy_config_dict")?,
        fields.object("policy_args")?,
    ) {
        (Some(_), Some(_)) => Err(fields.refuse(
            "policy_args",
            "it is the old name of `policy_config_dict`, which is also given; keep one of them",
        )),
        (new, old) => Ok(new.or(old).unwrap_or_default()),
    }
}

fn status(fields: &mut FileFields) -> Result<Status, FieldError> {
    match fields.take("status") {
        None | Some(Value::Null) => Ok(Status::Pending),
        Some(value) => {
            let status = serde_json::from_value(value.clone()).ok();
            // The others are words of reports.
            let status =
                status.filter(|status| !matches!(status, Status::Interrupted | Status::Skipped));
            status.ok_or_else(|| {
                fields.wrong(
                    "status",
                    Some(value),
                    "expected one of pending, running, completed, failed",
                )
            })
        }
    }
}

#[cfg(test)]
mod tests;
