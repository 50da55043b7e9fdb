//! The fields of a certificate. `docs/certificates.md` explains them.

use std::collections::BTreeMap;

use jobs::episode::EpisodeOutcome;
use jobs::journal::{PolicyFiles, RankStart};
use jobs::numbers::Numbers;
use jobs::plan::Git;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::schema::EpisodeId;
use crate::stats::SolvedRate;

/// A certificate of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// Schema of the file: `rrun/certificate/1`.
    pub schema: String,
    /// SHA-256 of the canonical JSON of `contents`, see [`crate::certificate::canonical`].
    pub sha256: String,
    /// What is certified.
    pub contents: Contents,
    /// Episodes that were run again before the certificate was written; `None` if none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
}

/// What is certified: what was run, where, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contents {
    /// Whether every episode of every job was planned, run once and scored, and `findings` is empty.
    pub complete: bool,
    /// Findings of `rrun verify`, and episodes that were not planned.
    pub findings: Vec<String>,
    /// The run.
    pub run: CertifiedRun,
    /// Files and folders of the policies.
    pub policies: Vec<CertifiedFiles>,
    /// The other files that decided the results: settings, programs and what these import.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<CertifiedInput>,
    /// The machines of the ranks, each once.
    pub machines: Vec<Machine>,
    /// Versions that the ranks reported, by program or library; more than one if ranks differ.
    pub versions: BTreeMap<String, Vec<String>>,
    /// The model server that ran beside the ranks, as in a jobs file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_server: Option<Value>,
    /// The jobs that were run, in file order.
    pub jobs: Vec<CertifiedJob>,
    /// Rates over all jobs.
    pub rates: SolvedRate,
}

/// The run that is certified.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertifiedRun {
    /// Id of the run.
    pub id: String,
    /// When the run was begun, RFC 3339 in UTC.
    pub created: String,
    /// When the last line of any journal was written, RFC 3339 in UTC.
    pub ended: Option<String>,
    /// Version of `rrun` that begun the run.
    pub rrun: String,
    /// State of the folder that the run was begun in, if that folder was under git.
    pub git: Option<Git>,
    /// Number of ranks when the run was begun.
    pub world_size: usize,
    /// Base seed (`--seed`).
    pub seed: u64,
    /// Command-line options that `--resume` takes over, by their long names.
    pub options: BTreeMap<String, String>,
    /// The jobs file, as the command line named it.
    pub jobs_file: String,
    /// SHA-256 of the jobs file.
    pub jobs_sha256: String,
    /// SHA-256 of `plan.json`.
    pub plan_sha256: String,
    /// The journals from which the results were taken.
    pub journals: Vec<CertifiedJournal>,
}

/// A journal, which the author can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertifiedJournal {
    /// Path relative to the run folder.
    pub name: String,
    /// SHA-256 of the file.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// A file or folder of a policy, with fields as in [`jobs::journal::PolicyFiles`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CertifiedFiles {
    /// Policy type.
    #[serde(rename = "type")]
    pub policy_type: String,
    /// File or folder, as the jobs name it.
    pub path: String,
    /// SHA-256 of the file, or of the list of the folder's files.
    pub sha256: String,
    /// Total size in bytes.
    pub bytes: u64,
}

/// A file that decided results, as in `inputs` of `plan.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertifiedInput {
    /// The file, as settings and imports name it.
    pub path: String,
    /// SHA-256 of its contents.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// A machine on which ranks ran, as far as results may depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Model name of the processor.
    pub cpu: Option<String>,
    /// Model name of the GPU; `None` if the ranks worked on the CPU.
    pub gpu: Option<String>,
    /// Number of threads of libtorch's operators on the CPU.
    pub threads: Option<usize>,
    /// Variables that choose the instructions of libtorch, [`jobs::journal::ROUNDING_VARIABLES`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rounding: BTreeMap<String, String>,
}

/// A job, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CertifiedJob {
    /// The entry of a jobs file from which the job can be run again.
    pub entry: Map<String, Value>,
    /// Settings in effect, without those of the place (devices, number of environments): versions
    /// of the simulator's packages are `env_versions`, those of the policy's `policy_versions`.
    pub settings: BTreeMap<String, Value>,
    /// The episodes that were planned: all of the job, or those of `--only`.
    pub planned: Numbers,
    /// Number of episodes that were scored more than once, because a rank died or was continued.
    pub scored_again: u64,
    /// Rates of the job.
    pub rates: SolvedRate,
    /// Every episode that was found, in order of number.
    pub episodes: Vec<EpisodeOutcome>,
}

/// Episodes that the author ran again, chosen by the hash of the contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Number of ranks that ran them.
    pub ranks: usize,
    /// Number of environments of each job.
    pub environments: usize,
    /// The machines of these ranks.
    pub machines: Vec<Machine>,
    /// The episodes, in the order in which the hash chooses them.
    pub episodes: Vec<RepeatedEpisode>,
}

/// An episode that was run again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatedEpisode {
    /// The episode.
    #[serde(flatten)]
    pub id: EpisodeId,
    /// What came out; `null` if the episode was not scored.
    pub again: Option<EpisodeOutcome>,
}

impl Certificate {
    /// Returns the episode of a job.
    pub fn episode(&self, job: &str, number: u64) -> Option<&EpisodeOutcome> {
        let job = self.contents.jobs.iter().find(|one| one.name() == job)?;
        let found = job
            .episodes
            .binary_search_by_key(&number, |one| one.episode);
        found.ok().map(|position| &job.episodes[position])
    }

    /// Returns how many episodes of the sample came out the same again, to the last bit, and how many
    /// there are; `None` without a sample.
    pub fn sample_agreement(&self) -> Option<(usize, usize)> {
        let episodes = &self.sample.as_ref()?.episodes;
        let agrees = |one: &&RepeatedEpisode| self.difference(one).is_none();
        Some((episodes.iter().filter(agrees).count(), episodes.len()))
    }
}

impl CertifiedJob {
    /// Returns the name of the job; empty if a stranger has left it out.
    pub fn name(&self) -> &str {
        self.entry
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Returns whether all of its episodes were planned.
    pub(super) fn is_planned_whole(&self) -> bool {
        let count = self.entry.get("num_episodes").and_then(Value::as_u64);
        count == Some(self.planned.count())
    }
}

impl From<&PolicyFiles> for CertifiedFiles {
    fn from(found: &PolicyFiles) -> Self {
        Self {
            policy_type: found.policy_type.clone(),
            path: found.path.clone(),
            sha256: found.sha256.clone(),
            bytes: found.bytes,
        }
    }
}

impl From<&RankStart> for Machine {
    fn from(start: &RankStart) -> Self {
        Self {
            host: start.host.clone(),
            cpu: start.cpu.clone(),
            gpu: start.gpu.as_ref().map(|gpu| gpu.name.clone()),
            threads: start.threads,
            rounding: start.rounding.clone(),
        }
    }
}
