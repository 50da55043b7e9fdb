//! When and where a run was, by what it was made, and what it was asked to do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::plan::{Git, Resumed};

/// When, where, by what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Names the run folder: the same whenever it is gone on with, another for another plan.
    #[serde(default)]
    pub id: String,
    /// UTC: first line of any journal. Here and below a launch that found nothing to do does not count.
    pub started: Option<String>,
    /// UTC: last line of any journal.
    #[serde(deserialize_with = "some_text")]
    pub ended: Option<String>,
    /// Seconds between the two, pauses between launches included.
    #[serde(default)]
    pub wall_s: Option<f64>,
    /// UTC: when the report was made.
    #[serde(default)]
    pub written: String,
    /// Command line.
    pub argv: Vec<String>,
    /// The folder that it was begun in, if that was under git.
    #[serde(default)]
    pub git: Option<Git>,
    /// Ranks of the launch that made the report, or of the last one that had something to do.
    pub world_size: usize,
    /// Machines.
    pub hosts: Vec<String>,
    /// GPUs that ranks worked on.
    #[serde(default)]
    pub gpus: Vec<GpuReport>,
    /// Versions that ranks named, by program or library; more than one where ranks differ.
    #[serde(default)]
    pub versions: BTreeMap<String, Vec<String>>,
    /// Every launch of the run, in time.
    #[serde(default)]
    pub launches: Vec<Launch>,
    /// Every start after the first, and what had changed.
    #[serde(default)]
    pub resumed_from: Vec<Resumed>,
    /// How the ranks' lines came together.
    pub gathered_by: String,
    /// Ranks that did not deliver.
    pub missing_ranks: Vec<usize>,
    /// Why it ended early.
    pub stopped: Option<String>,
    /// Version of `rrun` that made the report.
    pub rrun: String,
}

/// Reports had a text here that was never `null`.
fn some_text<'de, D: serde::Deserializer<'de>>(text: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(text)?.filter(|text| !text.is_empty()))
}

/// A GPU that ranks worked on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuReport {
    /// Machine.
    pub host: String,
    /// Number of the node.
    pub node: usize,
    /// As CUDA counted the visible ones for that rank.
    pub index: usize,
    /// As its maker calls it.
    pub name: String,
    /// Of its memory.
    pub bytes: u64,
    /// `GPU-…`.
    pub uuid: String,
}

/// One start of the whole run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Launch {
    /// UTC.
    pub started: String,
    /// Ranks.
    pub world_size: usize,
}

/// What was asked for, and what was in effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Jobs file.
    pub jobs_file: String,
    /// Identity of its bytes.
    pub sha256: String,
    /// Base seed.
    pub seed: u64,
    /// Ranks when the run was begun.
    pub world_size_at_start: usize,
    /// What the policies are made of.
    #[serde(default)]
    pub policies: Vec<PolicyReport>,
    /// How ranks came to their devices, each reason once.
    #[serde(default)]
    pub device_rules: Vec<String>,
    /// Settings in effect that all jobs had in common; `per_job[].settings` has them all.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
}

/// A file or folder that a policy was read from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyReport {
    /// Policy type as the jobs name it.
    #[serde(rename = "type")]
    pub policy_type: String,
    /// File or folder as the jobs name it.
    pub path: String,
    /// Of the file, or of the list of the folder's files, see [`crate::journal::PolicyFiles`].
    pub sha256: String,
    /// Bytes in all.
    pub bytes: u64,
    /// Types of numbers that jobs with this path ran in.
    pub dtypes: Vec<String>,
}
