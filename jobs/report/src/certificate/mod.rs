//! A certificate: one file with everything that somebody else needs to check the result of a run,
//! and to run it again.
//!
//! ```text
//! plan, journals ─► make ─► contents ─► canonical JSON ─► SHA-256 ─► sample: which episodes are run again
//! file of a stranger ─► read (size, form, hash) ─┬─► check    coverage, seeds, rates, sample
//!                                                ├─► plan     jobs file and plan to run it again
//!                                                └─► identity files and packages of another run
//! ```
//! The hash covers `contents`. Which episodes are run again follows from the hash, so it is known only
//! after all results are.

use std::io::Read as _;
use std::path::Path;

use jobs::assign::Only;
use jobs::eval_args::EvalArgs;
use jobs::file::JobFile;
use jobs::files;
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use serde_json::{Value, json};

pub mod canonical;
mod check;
mod identity;
mod make;
pub mod sample;
mod schema;

pub use identity::differences;
use make::solved;
pub use make::{machines, make};
pub use schema::*;

/// The `schema` field of every certificate that this version writes.
pub const SCHEMA: &str = "rrun/certificate/1";

/// Maximum size of a certificate in bytes: a quarter of a million episodes. Its JSON takes up to
/// sixteen times as much memory while it is read.
pub const MAX_BYTES: u64 = 32 << 20;

/// Beginning of the schema of every version.
pub const PREFIX: &str = "rrun/certificate/";

/// Number of bytes at the beginning of a file in which the schema is looked for.
const HEAD_BYTES: u64 = 4096;

/// Returns whether a file says at its beginning that it is a certificate, of whatever version.
pub fn is_certificate(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = files::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    let mut parts = head.windows(PREFIX.len());
    read.is_ok() && parts.any(|part| part == PREFIX.as_bytes())
}

impl Certificate {
    /// Reads a certificate and checks its hash.
    ///
    /// # Errors
    /// Refuses the file for the first problem found.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let text = files::read(path, MAX_BYTES);
        Self::parse(&text.map_err(|err| Refusal::at("cannot read the file", err))?)
    }

    /// Parses the text of a certificate and checks its hash.
    ///
    /// # Errors
    /// As [`Certificate::read`], without the errors of the file system.
    pub fn parse(text: &[u8]) -> Result<Self, Refusal> {
        let value = canonical::parse(text).map_err(|err| Refusal::at("it is not JSON", err))?;
        let found = value.get("schema").and_then(Value::as_str);
        if found != Some(SCHEMA) {
            let found = found.unwrap_or_default().escape_debug();
            return Err(Refusal::new(format_args!(
                "its schema is `{found}`, expected `{SCHEMA}`"
            )));
        }
        // The hash is that of the text, with fields of other versions that `Self` does not have.
        let found = canonical::sha256(&value.get("contents"))
            .map_err(|err| err.inside("its contents have no hash"))?;
        let certificate: Self = serde_json::from_value(value)
            .map_err(|err| Refusal::at("a field is missing or wrong", err))?;
        if found != certificate.sha256 {
            return Err(Refusal::new(format_args!(
                "its contents were changed: their SHA-256 is {found}, the certificate says {}",
                certificate.sha256.escape_debug()
            )));
        }
        Ok(certificate)
    }
}

/// Returns the jobs file of a certificate. Together with the base seed (`contents.run.seed`) and
/// [`only`], it asks for the episodes that were planned.
pub fn jobs_file(certificate: &Certificate) -> Value {
    let contents = &certificate.contents;
    let jobs: Vec<_> = contents.jobs.iter().map(|job| &job.entry).collect();
    match &contents.model_server {
        Some(server) => json!({"model_server": server, "jobs": jobs}),
        None => json!({"jobs": jobs}),
    }
}

/// Returns the value of `--only` with which the same episodes are planned; `None` if all were.
pub fn only(certificate: &Certificate) -> Option<Only> {
    let jobs = &certificate.contents.jobs;
    if jobs.iter().all(CertifiedJob::is_planned_whole) {
        return None;
    }
    let entry = |job: &CertifiedJob| format!("{}:{}", job.name(), job.planned);
    let entries: Vec<_> = jobs.iter().map(entry).collect();
    entries.join(";").parse().ok()
}

/// Returns the plan of a run of the certificate's jobs, which has not begun. The jobs are checked
/// by the rules of a jobs file.
///
/// # Errors
/// Refuses the first field that no jobs file may have.
pub fn plan(certificate: &Certificate) -> Result<RunPlan, Refusal> {
    plan_of(certificate, &jobs_file(certificate))
}

/// Returns the same plan with `jobs`, the certificate's jobs with the paths of this machine.
///
/// # Errors
/// Refuses the first field that no jobs file may have.
pub fn plan_of(certificate: &Certificate, jobs: &Value) -> Result<RunPlan, Refusal> {
    let run = &certificate.contents.run;
    let file = JobFile::new("certificate".as_ref(), run.jobs_sha256.clone(), jobs)?;
    let words = ["--jobs".into(), "certificate".into()];
    let args = EvalArgs {
        seed: run.seed,
        given: run.options.clone(),
        ..EvalArgs::parse_words(&words).expect("the words are those of `eval`")
    };
    let mut plan = RunPlan::new(&args, file, 1, run.created.clone());
    plan.id = certificate.sha256.chars().take(32).collect();
    for (job, certified) in plan.jobs.iter_mut().zip(&certificate.contents.jobs) {
        job.only = (!certified.is_planned_whole()).then(|| certified.planned.clone());
    }
    plan.only = only(certificate);
    Ok(plan)
}

#[cfg(test)]
pub(crate) mod tests;
