//! `rrun reproduce CERT`: runs the jobs of a certificate, and compares the results with it.
//!
//! ```text
//! certificate ─► jobs file, paths replaced ─► trusted? ─► rrun … eval --stop-when reproduced --against CERT
//! ```

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use jobs::count::counted;
use jobs::file::JobFile;
use jobs::layout::write_whole;
use jobs::refusal::Refusal;
use jobs::sha256;
use jobs::trust;
use report::certificate::{self, Certificate};
use serde_json::Value;

use crate::node::Node;
use crate::tools::paths::PathMapping;
use crate::tools::print;

/// Run the jobs of a certificate, until it is known whether the results are the same as those that
/// it has.
///
/// The evaluation stops as soon as a sequential test has decided whether the success rates differ by
/// less than --margin. Exits with 0 if they do, 1 if they differ, 3 if all episodes were too few to
/// tell, and 2 for errors. The same command again resumes the run.
#[derive(Debug, clap::Args)]
pub(super) struct ReproduceArgs {
    /// Certificate, as `rrun certify` writes it
    #[arg(value_name = "CERT")]
    certificate: PathBuf,

    /// Run folder [default: outputs/reproduce_<name>, with part of the certificate's hash]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Where a file or folder that the certificate names is on this machine, for example a
    /// checkpoint; may be repeated
    #[arg(long = "path", value_name = "THERE=HERE")]
    paths: Vec<PathMapping>,

    /// The policy's checkpoint on this machine, if the certificate names a single one
    #[arg(long, value_name = "PATH")]
    checkpoint: Option<String>,

    /// Number of ranks, as the launcher's option: a number, gpu, cpu or auto
    #[arg(long, value_name = "N")]
    nproc_per_node: Option<String>,

    /// The difference that is to be excluded, in percentage points of solved episodes
    #[arg(long, value_name = "POINTS")]
    margin: Option<String>,

    /// Probability that the decision is wrong, at most
    #[arg(long, value_name = "SHARE")]
    level: Option<String>,

    /// Run all episodes, without a test; exit as `rrun eval` does
    #[arg(long, conflicts_with_all = ["margin", "level"])]
    all: bool,

    /// Run what the certificate names (programs, modules, servers), even if you have not started a
    /// run with it yourself
    #[arg(long)]
    trust_certificate: bool,

    /// More options of `rrun eval`, after `--`, for example `-- --num-envs 8 --no-video`
    #[arg(last = true, value_name = "OPTION")]
    words: Vec<OsString>,
}

/// Prepares the evaluation, and runs it in place of this process.
pub(super) fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    let path = &args.certificate;
    let certificate = Certificate::read(path).map_err(|err| args.refused(err))?;
    if certificate::only(&certificate).is_some() {
        let part = "it has only some episodes of its jobs, which cannot be compared in rounds; \
                    `rrun verify --rerun 8` runs some of them again";
        return Err(args.refused(part).into());
    }
    let jobs = args.jobs(&certificate)?;
    let file = args.trusted(&jobs)?;
    let output = args.output_of(&certificate);
    let jobs_file = jobs_beside(&output);
    write_jobs(&jobs_file, &jobs)?;

    let node = Node::read()?;
    let mut eval = Command::new(&node.executable);
    if let Some(ranks) = &args.nproc_per_node {
        eval.arg("--nproc-per-node").arg(ranks);
    }
    eval.arg("eval").arg("--jobs").arg(&jobs_file);
    eval.arg("--output").arg(&output);
    let seed = certificate.contents.run.seed.to_string();
    eval.arg("--seed").arg(seed).args(args.test());
    eval.args(&args.words);
    print(format_args!(
        "{} of `{}`, with results in `{}`\n",
        counted(file.jobs.len(), "job"),
        path.display(),
        output.display(),
    ))?;
    // The evaluation takes the place of this process, so that signals reach it.
    let err = eval.exec();
    let program = node.executable.display();
    Err(Refusal::new(format_args!("cannot start `{program}`: {err}")).into())
}

/// Returns the path of the jobs beside a run folder, whose name may have dots.
fn jobs_beside(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".jobs.json");
    output.with_file_name(name)
}

fn write_jobs(path: &Path, jobs: &Value) -> Result<(), Refusal> {
    let write = |err| Refusal::new(format_args!("cannot write `{}`: {err}", path.display()));
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(write)?;
    }
    write_whole(path, format!("{jobs:#}").as_bytes()).map_err(write)
}

impl ReproduceArgs {
    /// Refuses the certificate.
    fn refused(&self, reason: impl std::fmt::Display) -> Refusal {
        Refusal::at(format_args!("`{}`", self.certificate.display()), reason)
    }

    /// Returns the run folder. Many certificates are called `certificate.json`, so its name has part
    /// of the hash.
    fn output_of(&self, certificate: &Certificate) -> PathBuf {
        self.output.clone().unwrap_or_else(|| {
            let stem = self.certificate.file_stem().unwrap_or_default();
            let hash: String = certificate.sha256.chars().take(8).collect();
            let name = format!("reproduce_{}_{hash}", stem.to_string_lossy());
            Path::new("outputs").join(name)
        })
    }

    /// Returns the jobs file of the certificate, with the paths of this machine.
    fn jobs(&self, certificate: &Certificate) -> anyhow::Result<Value> {
        let mut jobs = certificate::jobs_file(certificate);
        let mut paths = self.paths.clone();
        if let Some(here) = &self.checkpoint {
            let policies = certificate.contents.policies.iter();
            let mut named: Vec<_> = policies.map(|files| &files.path).collect();
            named.sort_unstable();
            named.dedup();
            let [there] = named[..] else {
                let count = named.len();
                return Err(Refusal::at(
                    "--checkpoint",
                    self.refused(format_args!(
                        "it names {count} paths of policies; use --path THERE=HERE"
                    )),
                )
                .into());
            };
            paths.push(PathMapping::new(there, here));
        }
        for mapping in &paths {
            mapping.apply(&mut jobs, &self.certificate)?;
        }
        Ok(jobs)
    }

    /// Checks the jobs, and that the user trusts the programs that they name.
    fn trusted(&self, jobs: &Value) -> Result<JobFile, Refusal> {
        let hash = sha256::of(jobs.to_string());
        let file = JobFile::new(&self.certificate, hash, jobs);
        let file =
            file.map_err(|err| Refusal::new(format_args!("the jobs of {}", self.refused(err))))?;
        let variable = |name: &str| std::env::var(name).ok();
        let uses = trust::untrusted(&file.jobs, file.model_server.as_ref(), &variable);
        if uses.is_empty() || self.trust_certificate {
            return Ok(file);
        }
        Err(self.refused(format_args!(
            "it names programs or servers that you have not started a run with here:\n  {}\nuse \
             --trust-certificate to run what the certificate names",
            uses.join("\n  ")
        )))
    }

    /// Returns the options of `eval` about the test against the certificate.
    fn test(&self) -> Vec<OsString> {
        if self.all {
            return Vec::new();
        }
        let mut words: Vec<OsString> = ["--stop-when", "reproduced", "--against"]
            .map(Into::into)
            .into();
        words.push(self.certificate.clone().into());
        for (option, value) in [("--margin", &self.margin), ("--level", &self.level)] {
            words.extend(value.iter().flat_map(|value| [option.into(), value.into()]));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_whose_names_differ_behind_a_dot_have_jobs_files_of_their_own() {
        let of = |output: &str| jobs_beside(Path::new(output));
        assert_eq!(of("outputs/n1.6"), Path::new("outputs/n1.6.jobs.json"));
        assert_eq!(of("outputs/n1.7/"), Path::new("outputs/n1.7.jobs.json"));
        assert_eq!(of("reach"), Path::new("reach.jobs.json"));
    }
}
