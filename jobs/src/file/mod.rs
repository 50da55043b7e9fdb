//! Parses Arena's `jobs.json` (all spellings of generations A to C) into [`Job`]s; errors name
//! file, job and field. A YAML file is an Experiment, see [`crate::experiment`].
//!
//! Unknown fields inside `arena_env_args`, `policy_config_dict` and `variations` belong to the
//! environment or the policy and are kept. Anywhere else they are refused with the nearest known
//! name. A job with variants becomes several jobs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::experiment::{Experiment, is_experiment};
use crate::files;
use crate::installed;
use crate::job::{Job, JobIndex};
use crate::layout::RunFolder;
use crate::model_server::{self, ModelServer};
use crate::refusal::Refusal;
use crate::settings;
use crate::sha256;
use crate::tree::{self, object};
use variations::{Overrides, VariantBytes};

mod entry;

mod variations;

pub(crate) use entry::{Entry, Wrong, given};
pub use entry::{MAX_EPISODES, entry, jobs_file};

/// Maximum size of a jobs file in bytes; the largest known real one has 509 KB.
const MAX_BYTES: u64 = 64 << 20;

/// The byte order mark that Windows editors write before UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Names in `video_cfg` of RLinf that are accepted without effect: `rrun` does not draw the text
/// that RLinf's videos show.
pub(crate) const UNUSED_VIDEO: &[&str] = &["info_on_video", "extra_info_on_video", "record_every"];

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
        let (jobs, model_server) = whole(value).map_err(|err| Refusal::in_file(path, err))?;
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
        return Ok(Experiment::parse(path, &tree::read(path)?, &[], &variable)?.jobs);
    }
    json(path, &read(path)?)
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
    let place = format!("cannot read jobs file `{}`", path.display());
    text.map_err(|err| Refusal::at(place, err))
}

/// Parses the JSON of a jobs file.
pub(crate) fn json(path: &Path, text: &[u8]) -> Result<Value, Refusal> {
    let json = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut value = serde_json::from_slice(json).map_err(|err| {
        let (path, line, column) = (path.display(), err.line(), err.column());
        Refusal::at(format_args!("`{path}` line {line} column {column}"), err)
    })?;
    installed::find_all(&mut value);
    Ok(value)
}

/// Converts parsed JSON to jobs.
///
/// # Errors
/// Refuses the first problem found.
pub fn parse(file: &Value) -> Result<Vec<Job>, Refusal> {
    Ok(whole(file)?.0)
}

/// What is in a jobs file.
#[derive(Deserialize, JsonSchema)]
struct Top {
    #[schemars(extend("wanted" = "a list of jobs"))]
    jobs: Vec<Value>,
    model_server: Option<Value>,
}

/// Converts everything in a jobs file: the jobs and the model server.
fn whole(file: &Value) -> Result<(Vec<Job>, Option<ModelServer>), Refusal> {
    let top: Top = settings::read("", object("top level", file)?)?;
    if top.jobs.is_empty() {
        let reason = "the list is empty, expected at least one job";
        return Err(Refusal::at("jobs", reason));
    }
    let model_server = model_server::read(&top.model_server.unwrap_or_default())?;
    let jobs = self::jobs(&top.jobs)?;
    if let Some(job) = jobs.iter().find(|job| job.only.is_some()) {
        let place = format!("{} field only", job.place());
        return Err(Refusal::at(place, "only plans have it; use --only"));
    }
    Ok((jobs, model_server))
}

/// Converts the entries of jobs, and makes the jobs of their variants.
pub(crate) fn jobs(entries: &[Value]) -> Result<Vec<Job>, Refusal> {
    let mut jobs = Vec::new();
    let mut bytes = VariantBytes::default();
    for (index, entry) in entries.iter().enumerate() {
        let (job, variants) = job(index, entry, &mut bytes)?;
        jobs.append(&mut variations::expanded(job, variants, &mut bytes)?);
    }
    for (index, job) in jobs.iter_mut().enumerate() {
        job.index = JobIndex(index);
    }
    refuse_duplicates(&jobs)?;
    Ok(jobs)
}

fn refuse_duplicates(jobs: &[Job]) -> Result<(), Refusal> {
    let mut seen = HashMap::new();
    for job in jobs {
        if let Some(JobIndex(first)) = seen.insert(job.name.to_lowercase(), job.index) {
            let whose = job.variant.as_ref().map_or_else(String::new, |variant| {
                format!(" of variant `{}` of `{}`", variant.name, variant.of)
            });
            let reason = format!(
                "`{}`{whose} is also the name of job {first}; names are file names and must differ",
                job.name
            );
            return Err(Refusal::at(
                format_args!("job {} field name", job.index.0),
                reason,
            ));
        }
    }
    Ok(())
}

/// Reads one entry of the list: the job, and its variants.
fn job(
    index: usize,
    entry: &Value,
    bytes: &mut VariantBytes,
) -> Result<(Job, Vec<Overrides>), Refusal> {
    let place = match entry["name"].as_str() {
        Some(name) => format!("job {index} ({})", name.escape_debug()),
        None => format!("job {index}"),
    };
    let mut given = object(&place, entry)?.clone();
    if let Some(Value::Object(video)) = given.get_mut("video_cfg") {
        video.retain(|name, _| !UNUSED_VIDEO.contains(&name.as_str()));
    }
    let mut read: Entry = settings::read(&place, &given)?;
    let wrong = |(field, reason)| Refusal::at(format_args!("{place} field {field}"), reason);
    let variations = read.variations.take();
    let mut job = read.job(index).map_err(wrong)?;
    let variants;
    (job.variations, variants) = variations::read(&place, variations.as_ref(), bytes)?;
    Ok((job, variants))
}

/// Checks that a name can be a file name: no separator, not hidden, short enough for
/// `dataset_<name>_rank<r>.hdf5`.
///
/// # Errors
/// Refuses it with the reason why it cannot.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
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

#[cfg(test)]
mod tests;
