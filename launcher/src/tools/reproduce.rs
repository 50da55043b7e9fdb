//! `rrun reproduce CERT`: are the success rates on this machine those of a certificate?
//!
//! ```text
//! CERT ─► jobs, with the paths of this machine ─► OUT.jobs.json ─► rrun [WORDS] eval …
//!                                                  --stop-when reproduced --against CERT
//! ```

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use jobs::count::counted;
use jobs::file::JobFile;
use jobs::layout::write_whole;
use jobs::sha256;
use report::certificate::{self, Certificate};

use crate::tools::again::AgainArgs;
use crate::tools::{evaluation, print};

/// Option of the evaluation that says when it ends.
const STOP_WHEN: &str = "--stop-when";

/// Run the jobs of a certificate, until it is known whether the results are the same as those that
/// it has.
///
/// The evaluation stops as soon as a sequential test has decided whether the success rates differ by
/// less than --margin. Exits with 0 if they do, 1 if they differ, 3 if all episodes were too few to
/// tell, and 2 for errors. The same command again resumes the run.
#[derive(Debug, clap::Args)]
pub(super) struct ReproduceArgs {
    /// Certificate, as `rrun certify` writes it
    #[arg(value_name = "CERT", group = "again")]
    certificate: PathBuf,

    /// Run folder [default: outputs/reproduce_<name>, with part of the certificate's hash]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    #[command(flatten)]
    again: AgainArgs,
}

/// Prepares the evaluation, and runs it in place of this process.
pub(super) fn run(args: &ReproduceArgs) -> anyhow::Result<ExitCode> {
    let path = &args.certificate;
    let whose = format!("`{}`", path.display());
    let certificate = Certificate::read(path).with_context(|| whose.clone())?;
    ensure!(
        certificate::only(&certificate).is_none(),
        "{whose}: it has only some episodes of its jobs, which cannot be compared in rounds; `rrun \
         verify --rerun 8` runs some of them again"
    );
    let (jobs, _) = args.again.jobs(&certificate, true)?;
    let file = JobFile::new(path, sha256::of(jobs.to_string()), &jobs);
    let file = file.with_context(|| format!("the jobs of {whose}"))?;
    let server = file.model_server.as_ref();
    args.again.trusted(&file.jobs, server, &whose)?;

    let output = args.output_of(&certificate);
    let jobs_file = jobs_beside(&output);
    let unwritable = || format!("cannot write `{}`", jobs_file.display());
    if let Some(parent) = jobs_file.parent() {
        std::fs::create_dir_all(parent).with_context(unwritable)?;
    }
    write_whole(&jobs_file, format!("{jobs:#}").as_bytes()).with_context(unwritable)?;

    let words = &args.again.words;
    let mut eval = evaluation::asked(words)?;
    eval.arg("--jobs").arg(&jobs_file);
    eval.arg("--output").arg(&output);
    let seed = certificate.contents.run.seed.to_string();
    if !evaluation::has(words, "--seed") {
        eval.args(["--seed", &seed]);
    }
    if !evaluation::has(words, STOP_WHEN) {
        eval.args([STOP_WHEN, "reproduced", "--against"]).arg(path);
    }
    print(format_args!(
        "{} of {whose}, with results in `{}`\n",
        counted(file.jobs.len(), "job"),
        output.display(),
    ))?;
    // The evaluation takes the place of this process, so that signals reach it.
    let err = eval.exec();
    Err(err).with_context(|| format!("cannot start `{}`", eval.get_program().display()))
}

/// Returns the path of the jobs beside a run folder, whose name may have dots.
fn jobs_beside(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".jobs.json");
    output.with_file_name(name)
}

impl ReproduceArgs {
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
