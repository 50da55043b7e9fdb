//! Compares what a certificate says about files and packages with what ranks have used that ran its
//! episodes again.

use jobs::count::{counted, listed};
use jobs::inputs::{InputFile, versions};
use jobs::journal::PolicyFiles;

use crate::certificate::{CertifiedFiles, CertifiedInput, CertifiedJob, Contents};
use crate::merged::Merged;
use crate::verify::Findings;

/// Number of files that are named.
const NAMED: usize = 3;

/// The interpreter among the versions of packages. Its patches change no result that is known.
const INTERPRETER: &str = ".python";

/// Returns which policies, other files and versions differ from those of the certificate. `here` says
/// where a file is on this machine, if it is elsewhere.
pub fn differences(
    contents: &Contents,
    again: &Merged,
    here: impl Fn(&str) -> Option<String>,
) -> Findings {
    let mut findings = Findings {
        wrong: policies(contents, again),
        notes: Vec::new(),
    };
    let mut absent = Vec::new();
    let files = &again.plan.inputs;
    for CertifiedInput { path, sha256, .. } in &contents.inputs {
        let place = here(path).unwrap_or_else(|| path.clone());
        let is_same = |file: &InputFile| file.sha256.as_ref() == Some(sha256);
        match files.get(&place) {
            // A large file, which has no sum here, is compared with the policies.
            Some(InputFile {
                sha256: Some(found),
                ..
            }) if found != sha256 => findings.wrong.push(format!(
                "`{place}` has the SHA-256 {found} here, and had {sha256}"
            )),
            None if !files.values().any(is_same) => absent.push(format!("`{path}`")),
            _ => {}
        }
    }
    if !absent.is_empty() {
        findings.notes.push(format!(
            "{} not compared, because nothing here names or imports them: {}",
            counted(absent.len(), "file"),
            listed(&absent, NAMED)
        ));
    }
    for job in &contents.jobs {
        packages(job, again, &mut findings);
    }
    findings
}

/// Returns how the policies that the ranks have read differ.
fn policies(contents: &Contents, again: &Merged) -> Vec<String> {
    let is_known = |found: &&PolicyFiles| {
        let mut known = contents.policies.iter();
        known.any(|files| files.sha256 == found.sha256)
    };
    let mut wrong: Vec<_> = again
        .policies()
        .iter()
        .filter(|found| !is_known(found))
        .map(|PolicyFiles { path, sha256, .. }| {
            format!("policy `{path}` has the SHA-256 {sha256} here, which no policy had")
        })
        .collect();
    // Of a few episodes, some policies may have run none.
    let ran = |files: &CertifiedFiles| {
        let mut jobs = again.plan.jobs.iter();
        jobs.any(|job| job.policy_type == files.policy_type)
    };
    if again.policies().is_empty() && contents.policies.iter().any(ran) {
        wrong.push("the files of the policies could not be hashed here".to_owned());
    }
    wrong
}

fn packages(certified: &CertifiedJob, again: &Merged, findings: &mut Findings) {
    let name = certified.name();
    let mut jobs = again.plan.jobs.iter();
    let job = jobs.find(|job| job.name == name);
    let Some(settings) = job.and_then(|job| again.settings_of(job).last()) else {
        return;
    };
    for other in versions::others(&certified.settings, settings) {
        let text = format!(
            "{name}: {} is {} here, and was {}",
            other.package, other.now, other.before
        );
        match other.package.ends_with(INTERPRETER) {
            true => findings.notes.push(text),
            false => findings.wrong.push(text),
        }
    }
}
