//! One certificate for a leaderboard: whether it holds, and the rows that it has.

use std::collections::{BTreeMap, BTreeSet};

use jobs::policies::canonical_policy;
use jobs::sha256;
use serde_json::{Map, Value, json};

use crate::certificate::{Certificate, CertifiedFiles, CertifiedJob, CertifiedRates, canonical};
use crate::leaderboard::BoardRow;
use crate::leaderboard::ranks::{EpisodeKey, Results};

/// A certificate, as the leaderboard found it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Path of the file, relative to the leaderboard.
    pub file: String,
    /// What it certifies, or why it is not ranked.
    pub(super) found: Result<Certified, String>,
}

/// By whom a certificate is signed, after the signature was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// Type and fingerprint of the key.
    pub key: String,
    /// Name in the file of allowed signers.
    pub name: Option<String>,
}

/// The results of a certificate that holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Certified {
    /// SHA-256 of the contents.
    pub(super) sha256: String,
    /// One row for each policy and its tasks.
    pub(super) rows: Vec<(Tasks, Row)>,
}

/// What jobs ask for besides the policy: rows with the same tasks can be compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tasks {
    pub(super) suite: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) environments: Vec<String>,
    pub(super) sha256: String,
}

/// A row before it is ranked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) shown: BoardRow,
    pub(super) results: Results,
}

/// Fields of a job that are not part of its task. The name is none either, because authors name
/// jobs after policies; what the seeds of its episodes are is compared by themselves.
const OF_POLICY: [&str; 7] = [
    "name",
    "policy_type",
    "policy_config_dict",
    "seed",
    "suite",
    "total_num_envs",
    "group_size",
];

/// Arguments of an environment that say where it runs.
const OF_PLACE: [&str; 2] = ["num_envs", "python"];

impl Entry {
    /// Judges a certificate that was read. `signed` is the result of checking its signature.
    pub fn new(
        file: String,
        certificate: Certificate,
        signed: Result<Option<Signed>, String>,
    ) -> Self {
        let found = certified(&file, certificate, signed);
        Self { file, found }
    }

    /// Makes the entry of a file that cannot be read.
    pub fn refused(file: String, reason: String) -> Self {
        Self {
            file,
            found: Err(reason),
        }
    }
}

fn certified(
    file: &str,
    certificate: Certificate,
    signed: Result<Option<Signed>, String>,
) -> Result<Certified, String> {
    if let Some(wrong) = certificate.check().into_iter().next() {
        return Err(wrong);
    }
    if !certificate.contents.complete {
        return Err("it is the certificate of an incomplete run".to_owned());
    }
    let signed = signed?;
    let mut parts: BTreeMap<PartKey, Vec<&CertifiedJob>> = BTreeMap::new();
    for job in &certificate.contents.jobs {
        let key = PartKey::of(&certificate, job);
        parts.entry(key).or_default().push(job);
    }
    let rows = parts.into_iter().map(|(key, jobs)| {
        let shown = BoardRow {
            policy_type: key.policy_type,
            policy: key.policy,
            policy_sha256: key.policy_sha256,
            rank: [1, 1],
            rates: CertifiedRates::of(jobs.iter().flat_map(|job| &job.episodes)),
            file: file.to_owned(),
            sha256: certificate.sha256.clone(),
            key: signed.as_ref().map(|signed| signed.key.clone()),
            signer: signed.as_ref().and_then(|signed| signed.name.clone()),
            sample: certificate
                .sample_agreement()
                .map(|(same, all)| [same, all]),
        };
        let results = results(&jobs);
        (tasks(key.suite, &jobs), Row { shown, results })
    });
    Ok(Certified {
        rows: rows.collect(),
        sha256: certificate.sha256.clone(),
    })
}

/// What the jobs of a row have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PartKey {
    suite: Option<(String, String)>,
    policy_type: String,
    policy: Option<String>,
    policy_sha256: Option<String>,
}

impl PartKey {
    fn of(certificate: &Certificate, job: &CertifiedJob) -> Self {
        let policy_type = job.entry.get("policy_type").and_then(Value::as_str);
        let policy_type = canonical_policy(policy_type.unwrap_or_default());
        let files = files(certificate, job, policy_type);
        Self {
            suite: job.suite(),
            policy_type: policy_type.to_owned(),
            policy: files.map(|files| files.path.clone()),
            policy_sha256: files.map(|files| files.sha256.clone()),
        }
    }
}

/// Returns the files of a job's policy: those that the job names, or the only ones of its type.
fn files<'a>(
    certificate: &'a Certificate,
    job: &CertifiedJob,
    policy_type: &str,
) -> Option<&'a CertifiedFiles> {
    let config = job
        .entry
        .get("policy_config_dict")
        .and_then(Value::as_object);
    let mut of_type = certificate
        .contents
        .policies
        .iter()
        .filter(|files| files.policy_type == policy_type);
    let names = |files: &&CertifiedFiles| {
        let mut values = config.into_iter().flat_map(Map::values);
        values.any(|value| value.as_str() == Some(files.path.as_str()))
    };
    of_type.clone().find(names).or_else(|| {
        let first = of_type.next()?;
        of_type.next().is_none().then_some(first)
    })
}

fn tasks(suite: Option<(String, String)>, jobs: &[&CertifiedJob]) -> Tasks {
    let (suite, protocol) = suite.unzip();
    let environment = |job: &&CertifiedJob| {
        let name = job.entry.get("arena_env_args")?.get("environment")?;
        Some(name.as_str()?.to_owned())
    };
    let environments: BTreeSet<_> = jobs.iter().filter_map(environment).collect();
    let mut each: Vec<_> = jobs.iter().map(|job| task(job)).collect();
    each.sort();
    Tasks {
        suite,
        protocol,
        environments: environments.into_iter().collect(),
        sha256: sha256::of(each.concat()),
    }
}

/// Returns the SHA-256 of what a job asks for besides its policy.
fn task(job: &CertifiedJob) -> String {
    let mut entry = job.entry.clone();
    entry.retain(|field, _| !OF_POLICY.contains(&field.as_str()));
    if let Some(Value::Object(args)) = entry.get_mut("arena_env_args") {
        args.retain(|field, _| !OF_PLACE.contains(&field.as_str()));
    }
    // A certificate that was read has a canonical text.
    canonical::sha256(&json!(entry)).unwrap_or_default()
}

fn results(jobs: &[&CertifiedJob]) -> Results {
    let outcomes = jobs.iter().flat_map(|job| {
        let task = sha256::digest(task(job));
        let number = u64::from_le_bytes(task[..8].try_into().unwrap_or_default());
        let key = move |seed: u64| -> EpisodeKey { (number, seed) };
        let episodes = job.episodes.iter();
        episodes.map(move |one| (key(one.seed), one.success == Some(true)))
    });
    Results::new(outcomes.collect())
}
