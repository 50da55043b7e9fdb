//! Where the policies of a certificate are on this machine, and whether they are the same.

use std::fs::File;
use std::path::{Path, PathBuf};

use jobs::refusal::Refusal;
use jobs::sha256;
use report::Merged;
use report::certificate::{CertifiedFiles, Contents};
use serde_json::Value;

use crate::tools::paths::PathMapping;

/// Returns where the policies of a certificate are on this machine, as far as that is not where the
/// author had them, after a comparison of the hashes of their files. `given` are the values of
/// `--policy`, and `paths` those of `--path`, which have been applied to `jobs` already.
pub(super) fn locate(
    jobs: &Value,
    contents: &Contents,
    given: &[String],
    paths: &[PathMapping],
) -> Result<Vec<PathMapping>, Refusal> {
    let places: Vec<(&CertifiedFiles, PathBuf)> = given
        .iter()
        .map(|text| place(contents, text))
        .collect::<Result<_, _>>()?;
    let mut moved = Vec::new();
    for files in &contents.policies {
        let place = places.iter().find(|(of, _)| of.path == files.path);
        let mapped = paths.iter().find_map(|mapping| mapping.of(&files.path));
        match (place, mapped) {
            (Some((_, here)), _) => {
                check(files, here)?;
                moved.push(PathMapping::new(&files.path, &here.to_string_lossy()));
            }
            (None, Some(here)) => check(files, Path::new(&here))?,
            (None, None) if Path::new(&files.path).exists() => {
                check(files, Path::new(&files.path))?;
            }
            // The path of a model of the Hugging Face Hub is in the cache of the author's machine,
            // and the jobs have its name.
            (None, None) if is_in(jobs, &files.path) => {
                return Err(Refusal::new(format_args!(
                    "the policy `{}` is not on this machine; use --policy PATH to say where it is",
                    files.path
                )));
            }
            (None, None) => {}
        }
    }
    Ok(moved)
}

/// Returns the policy that a value of `--policy` is about, and its place.
fn place<'a>(contents: &'a Contents, text: &str) -> Result<(&'a CertifiedFiles, PathBuf), Refusal> {
    let policies = &contents.policies;
    for files in policies {
        let rest = text.strip_prefix(files.path.as_str());
        if let Some(here) = rest.and_then(|rest| rest.strip_prefix('=')) {
            return Ok((files, here.into()));
        }
    }
    match &policies[..] {
        [only] => Ok((only, text.into())),
        policies => {
            let known: Vec<_> = policies.iter().map(|files| files.path.as_str()).collect();
            Err(Refusal::new(format_args!(
                "--policy {text}: expected OLD={text} with one of the policies in the \
                 certificate:\n  {}",
                known.join("\n  ")
            )))
        }
    }
}

fn check(files: &CertifiedFiles, here: &Path) -> Result<(), Refusal> {
    let sum = sha256::of_files(here, |file| sha256::of_reader(File::open(file)?));
    let here = here.display();
    let found =
        sum.map_err(|err| Refusal::at(format_args!("cannot read the policy `{here}`"), err))?;
    if found.sha256 == files.sha256 {
        return Ok(());
    }
    Err(Refusal::new(format_args!(
        "the policy `{here}` is not the one of the certificate: its SHA-256 is {}, that of `{}` was {}",
        found.sha256, files.path, files.sha256
    )))
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

/// Returns whether the policy of a job names this path.
fn is_in(jobs: &Value, path: &str) -> bool {
    // A mapping that changes nothing finds what one that does would replace.
    let same = PathMapping::new(path, path);
    let jobs = jobs["jobs"].as_array().into_iter().flatten();
    let mut configs = jobs.map(|job| job["policy_config_dict"].clone());
    configs.any(|mut config| same.replace(&mut config) > 0)
}
