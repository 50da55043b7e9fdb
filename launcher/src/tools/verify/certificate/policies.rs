//! Where the policies of a certificate are on this machine, and whether they are the same.

use std::fs::File;
use std::path::{Path, PathBuf};

use jobs::plan::RunPlan;
use jobs::sha256;
use report::Merged;
use report::certificate::{CertifiedFiles, Contents};
use serde_json::Value;

/// The reason why episodes are not run again with the policies that are here.
#[derive(Debug, thiserror::Error)]
pub(in crate::tools) enum PolicyError {
    #[error(
        "--policy {given}: expected OLD={given} with one of the policies in the certificate:\n  \
         {}",
        known.join("\n  ")
    )]
    Ambiguous { given: String, known: Vec<String> },
    #[error("the policy `{path}` is not on this machine; use --policy PATH to say where it is")]
    Missing { path: String },
    #[error("cannot read the policy `{}`: {err}", path.display())]
    Read { path: PathBuf, err: std::io::Error },
    #[error(
        "the policy `{}` is not the one of the certificate: its SHA-256 is {found}, that of \
         `{path}` was {wanted}",
        here.display()
    )]
    Other {
        path: String,
        here: PathBuf,
        found: String,
        wanted: String,
    },
}

/// Replaces the paths of policies in a plan by those on this machine, and compares the hashes of
/// their files. `given` are the values of `--policy`.
pub(super) fn locate(
    plan: &mut RunPlan,
    contents: &Contents,
    given: &[String],
) -> Result<(), PolicyError> {
    let places: Vec<(&CertifiedFiles, PathBuf)> = given
        .iter()
        .map(|text| place(contents, text))
        .collect::<Result<_, _>>()?;
    for files in &contents.policies {
        let place = places.iter().find(|(of, _)| of.path == files.path);
        match place {
            Some((_, here)) => {
                check(files, here)?;
                replace_all(plan, &files.path, &here.to_string_lossy());
            }
            None if Path::new(&files.path).exists() => check(files, Path::new(&files.path))?,
            // The path of a model of the Hugging Face Hub is in the cache of the author's machine,
            // and the jobs have its name.
            None if is_in(plan, &files.path) => {
                return Err(PolicyError::Missing {
                    path: files.path.clone(),
                });
            }
            None => {}
        }
    }
    Ok(())
}

/// Returns the policy that a value of `--policy` is about, and its place.
fn place<'a>(
    contents: &'a Contents,
    text: &str,
) -> Result<(&'a CertifiedFiles, PathBuf), PolicyError> {
    let policies = &contents.policies;
    for files in policies {
        let rest = text.strip_prefix(files.path.as_str());
        if let Some(here) = rest.and_then(|rest| rest.strip_prefix('=')) {
            return Ok((files, here.into()));
        }
    }
    match &policies[..] {
        [only] => Ok((only, text.into())),
        policies => Err(PolicyError::Ambiguous {
            given: text.to_owned(),
            known: policies.iter().map(|files| files.path.clone()).collect(),
        }),
    }
}

fn check(files: &CertifiedFiles, here: &Path) -> Result<(), PolicyError> {
    let sum = sha256::of_files(here, |file| sha256::of_reader(File::open(file)?));
    let found = sum.map_err(|err| PolicyError::Read {
        path: here.to_owned(),
        err,
    })?;
    if found.sha256 == files.sha256 {
        return Ok(());
    }
    Err(PolicyError::Other {
        path: files.path.clone(),
        here: here.to_owned(),
        found: found.sha256,
        wanted: files.sha256.clone(),
    })
}

/// Returns how the files that the ranks have read differ from those of the certificate.
pub(super) fn differences(contents: &Contents, again: &Merged) -> Vec<String> {
    let is_known = |sha256: &str| contents.policies.iter().any(|files| files.sha256 == sha256);
    let others = again
        .policies()
        .iter()
        .filter(|files| !is_known(&files.sha256));
    let mut wrong: Vec<_> = others
        .map(|files| {
            format!(
                "policy `{}` has the SHA-256 {} here, which is none of the certificate",
                files.path, files.sha256
            )
        })
        .collect();
    if again.policies().is_empty() && !contents.policies.is_empty() {
        wrong.push("the files of the policies could not be hashed here".to_owned());
    }
    wrong
}

fn replace_all(plan: &mut RunPlan, old: &str, new: &str) {
    for job in &mut plan.jobs {
        job.policy_config
            .values_mut()
            .for_each(|value| replace(value, old, new));
    }
}

fn replace(value: &mut Value, old: &str, new: &str) {
    match value {
        Value::String(text) if text == old => new.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, old, new)),
        Value::Object(members) => members
            .values_mut()
            .for_each(|member| replace(member, old, new)),
        _ => {}
    }
}

fn is_in(plan: &RunPlan, path: &str) -> bool {
    let mut configs = plan.jobs.iter().flat_map(|job| job.policy_config.values());
    configs.any(|value| has(value, path))
}

fn has(value: &Value, path: &str) -> bool {
    match value {
        Value::String(text) => text == path,
        Value::Array(items) => items.iter().any(|item| has(item, path)),
        Value::Object(members) => members.values().any(|member| has(member, path)),
        _ => false,
    }
}
