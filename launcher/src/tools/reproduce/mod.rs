//! `rrun reproduce NAME|CERT`: runs a suite, or the jobs of a certificate, and compares the results
//! with a published rate, or with the certificate.
//!
//! ```text
//! certificate ─► jobs file, paths replaced ─► trusted? ─┐
//! suite, policy ─► jobs file ───────────────────────────┴─► rrun … eval --stop-when reproduced
//!                                                             --against CERT | --claim 462/500
//! ```

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use jobs::claim::Claim;
use jobs::file::{JobFile, JobFileError};
use jobs::layout::write_whole;
use jobs::printable::printable;
use jobs::refusal::Refusal;
use jobs::sha256;
use jobs::suites::SuiteRow;
use jobs::trust;
use report::certificate::{self, Certificate, CertificateError};
use serde_json::Value;

use crate::node::Node;
use crate::tools::paths::{NoSuchPath, PathMapping};
use crate::tools::suite::{Asked, hint, jobs_file};
use crate::tools::{ToolError, print};
use crate::verdict::ERROR;

/// Run a suite or the jobs of a certificate, until it is known whether the results are the same as
/// those that were published.
///
/// The evaluation stops as soon as a sequential test has decided whether the success rates differ by
/// less than --margin. Exits with 0 if they do, 1 if they differ, 3 if all episodes were too few to
/// tell, and 2 for errors. The same command again resumes the run.
#[derive(Debug, clap::Args)]
pub(super) struct ReproduceArgs {
    /// Certificate, as `rrun certify` writes it, or a suite, as `rrun suite` lists them
    #[arg(value_name = "NAME|CERT")]
    what: PathBuf,

    /// Published result of the suite, over all tasks, e.g. 462/500
    #[arg(long, value_name = "SOLVED/EPISODES", conflicts_with = "all")]
    claim: Option<Claim>,

    /// Run folder [default: outputs/reproduce_<name>; the name of a certificate has part of its hash]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Where a file or folder that the certificate names is on this machine, for example a
    /// checkpoint; may be repeated
    #[arg(long = "path", value_name = "THERE=HERE", conflicts_with = "policy")]
    paths: Vec<PathMapping>,

    /// The policy's checkpoint on this machine, if the certificate names a single one
    #[arg(long, value_name = "PATH", conflicts_with = "policy")]
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
    #[arg(long, conflicts_with = "policy")]
    trust_certificate: bool,

    /// What is run of a suite
    #[command(flatten)]
    asked: Asked,

    /// More options of `rrun eval`, after `--`, for example `-- --num-envs 8 --no-video`
    #[arg(last = true, value_name = "OPTION")]
    words: Vec<OsString>,
}

/// The reason why a certificate cannot be reproduced.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReproduceError {
    #[error("`{}`: {err}", path.display())]
    Certificate {
        path: PathBuf,
        err: CertificateError,
    },
    #[error("the jobs of `{}`: {err}", path.display())]
    Jobs {
        path: PathBuf,
        err: Box<JobFileError>,
    },
    #[error(
        "`{}` has only some episodes of its jobs, which cannot be compared in rounds; `rrun verify \
         {} --rerun 8` runs some of them again", .0.display(), .0.display()
    )]
    Part(PathBuf),
    #[error(transparent)]
    Path(#[from] NoSuchPath),
    #[error("--checkpoint: `{}` names {count} paths of policies; use --path THERE=HERE", path.display())]
    Checkpoints { path: PathBuf, count: usize },
    #[error(
        "`{}` names programs or servers that you have not started a run with here:\n  {}\nuse \
         --trust-certificate to run what the certificate names", path.display(), uses.join("\n  ")
    )]
    Foreign { path: PathBuf, uses: Vec<String> },
    #[error(transparent)]
    Suite(#[from] Refusal),
    #[error("`{0}` is a suite: --policy TYPE says which policy to run")]
    NoPolicy(&'static str),
    #[error(
        "`{0}` is a suite: --claim SOLVED/EPISODES says which result to reproduce, or --all runs \
         every episode without a test"
    )]
    NoClaim(&'static str),
    #[error("`{found}` is neither a file nor a suite{hint}; `rrun suite` lists the suites")]
    Nothing { found: String, hint: String },
    #[error("`{}` is a certificate, which has its own policies; --policy is for suites", .0.display())]
    Policy(PathBuf),
    #[error("`{}` is a certificate, which has its own results; --claim is for suites", .0.display())]
    Claim(PathBuf),
    #[error("cannot write `{}`: {err}", path.display())]
    Write { path: PathBuf, err: io::Error },
    #[error("cannot start `{}`: {err}", path.display())]
    Start { path: PathBuf, err: io::Error },
}

pub(super) fn run(args: &ReproduceArgs) -> Result<ExitCode, ToolError> {
    start(args).or_else(|err| {
        eprintln!("rrun: error: {}", printable(&err.to_string()));
        // 1 means that the results differ.
        Ok(ExitCode::from(ERROR))
    })
}

/// Returns the path of the jobs beside a run folder, whose name may have dots.
fn jobs_beside(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".jobs.json");
    output.with_file_name(name)
}

/// Prepares the evaluation, and runs it in place of this process.
fn start(args: &ReproduceArgs) -> Result<ExitCode, ToolError> {
    let prepared = match args.suite() {
        Some(suite) => args.prepared_suite(suite)?,
        None => args.prepared_certificate()?,
    };
    let output = args.output.clone().unwrap_or_else(|| {
        let name = format!("reproduce_{}", prepared.name);
        Path::new("outputs").join(name)
    });
    let jobs_file = jobs_beside(&output);
    write_jobs(&jobs_file, &prepared.jobs)?;

    let node = Node::read()?;
    let mut eval = Command::new(&node.executable);
    if let Some(ranks) = &args.nproc_per_node {
        eval.arg("--nproc-per-node").arg(ranks);
    }
    eval.arg("eval").arg("--jobs").arg(&jobs_file);
    eval.arg("--output").arg(&output);
    eval.args(&prepared.words).args(&args.words);
    print(format_args!(
        "{} of `{}`, with results in `{}`\n",
        jobs::count::counted(prepared.count, "job"),
        args.what.display(),
        output.display(),
    ))?;
    // The evaluation takes the place of this process, so that signals reach it.
    let err = eval.exec();
    let path = node.executable;
    Err(ReproduceError::Start { path, err }.into())
}

fn write_jobs(path: &Path, jobs: &Value) -> Result<(), ReproduceError> {
    let write = |err| ReproduceError::Write {
        path: path.to_owned(),
        err,
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(write)?;
    }
    let text = serde_json::to_vec_pretty(jobs).map_err(|err| write(err.into()))?;
    write_whole(path, &text).map_err(write)
}

/// What is run.
struct Prepared {
    /// The suite, or the certificate with part of its hash: many are called `certificate.json`.
    name: String,
    jobs: Value,
    /// Number of jobs.
    count: usize,
    /// Options of `eval`: the seed, and the test.
    words: Vec<OsString>,
}

impl ReproduceArgs {
    /// Returns the suite that is named, unless there is a file of that name.
    fn suite(&self) -> Option<&'static SuiteRow> {
        let suite = SuiteRow::of(self.what.to_str()?)?;
        (!self.what.exists()).then_some(suite)
    }

    fn prepared_suite(&self, suite: &'static SuiteRow) -> Result<Prepared, ReproduceError> {
        if self.asked.policy().is_none() {
            return Err(ReproduceError::NoPolicy(&suite.name));
        }
        if self.claim.is_none() && !self.all {
            return Err(ReproduceError::NoClaim(&suite.name));
        }
        let jobs = jobs_file(suite, &self.asked)?;
        let reference = self.claim.map(|claim| {
            let claim = format!("{}/{}", claim.solved, claim.episodes);
            ("--claim", OsString::from(claim))
        });
        Ok(Prepared {
            name: suite.name.to_owned(),
            count: jobs["jobs"].as_array().map_or(0, Vec::len),
            jobs,
            words: self.test(reference),
        })
    }

    fn prepared_certificate(&self) -> Result<Prepared, ToolError> {
        let path = &self.what;
        if !path.exists() {
            let found = path.to_string_lossy().into_owned();
            return Err(ReproduceError::Nothing {
                hint: hint(&found),
                found,
            }
            .into());
        }
        if self.asked.policy().is_some() {
            return Err(ReproduceError::Policy(path.clone()).into());
        }
        if self.claim.is_some() {
            return Err(ReproduceError::Claim(path.clone()).into());
        }
        let certificate = Certificate::read(path).map_err(|err| ReproduceError::Certificate {
            path: path.clone(),
            err,
        })?;
        if certificate::only(&certificate).is_some() {
            return Err(ReproduceError::Part(path.clone()).into());
        }
        let jobs = self.jobs(&certificate)?;
        let file = self.trusted(&jobs)?;
        let seed = certificate.contents.run.seed.to_string();
        let reference = (!self.all).then(|| ("--against", path.clone().into_os_string()));
        let mut words = vec!["--seed".into(), seed.into()];
        words.extend(self.test(reference));
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let hash: String = certificate.sha256.chars().take(8).collect();
        Ok(Prepared {
            name: format!("{stem}_{hash}"),
            jobs,
            count: file.jobs.len(),
            words,
        })
    }

    /// Returns the jobs file of the certificate, with the paths of this machine.
    fn jobs(&self, certificate: &Certificate) -> Result<Value, ReproduceError> {
        let mut jobs = certificate::jobs_file(certificate);
        let mut paths = self.paths.clone();
        if let Some(here) = &self.checkpoint {
            let mut named: Vec<_> = certificate
                .contents
                .policies
                .iter()
                .map(|files| &files.path)
                .collect();
            named.sort_unstable();
            named.dedup();
            let [there] = named[..] else {
                return Err(ReproduceError::Checkpoints {
                    path: self.what.clone(),
                    count: named.len(),
                });
            };
            paths.push(PathMapping::new(there, here));
        }
        for mapping in &paths {
            mapping.apply(&mut jobs, &self.what)?;
        }
        Ok(jobs)
    }

    /// Checks the jobs, and that the user trusts the programs that they name.
    fn trusted(&self, jobs: &Value) -> Result<JobFile, ReproduceError> {
        let path = &self.what;
        let hash = sha256::of(jobs.to_string());
        let file = JobFile::new(path, hash, jobs).map_err(|err| ReproduceError::Jobs {
            path: path.clone(),
            err: Box::new(err),
        })?;
        let variable = |name: &str| std::env::var(name).ok();
        let uses = trust::untrusted(&file.jobs, file.model_server.as_ref(), &variable);
        if uses.is_empty() || self.trust_certificate {
            return Ok(file);
        }
        Err(ReproduceError::Foreign {
            path: path.clone(),
            uses,
        })
    }

    /// Returns the options of `eval` about the test against a reference.
    fn test(&self, reference: Option<(&str, OsString)>) -> Vec<OsString> {
        let Some((option, value)) = reference else {
            return Vec::new();
        };
        let mut words = ["--stop-when", "reproduced", option]
            .map(OsString::from)
            .to_vec();
        words.push(value);
        for (option, value) in [("--margin", &self.margin), ("--level", &self.level)] {
            if let Some(value) = value {
                words.push(OsString::from(option));
                words.push(OsString::from(value));
            }
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
