//! `rrun certify DIR`: writes one file from which others can check the result of a run.
//!
//! ```text
//! run folder ─► verify ─► certificate ─► SHA-256 ─► sample, run again from the certificate alone
//!                                                    └─► certificate.json
//! ```

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use jobs::count::counted;
use jobs::layout::{RunFolder, write_whole};
use jobs::plan::RunPlan;
use report::certificate::{self, Certificate, Contents, MAX_BYTES};

use crate::tools::again::AgainArgs;
use crate::tools::{merged, open, print_line, verify};

/// Findings that are named when a run is refused; `rrun verify` lists all.
const NAMED: usize = 5;

/// Write a certificate of a run: what was run, where, and what came out of every episode, in one
/// file that others can check and run again with `rrun verify`.
///
/// A sample of the episodes is run again first. Which ones follows from the hash of the results.
#[derive(Debug, clap::Args)]
pub(super) struct CertifyArgs {
    /// Run folder
    // In the group, because every certificate has a sample unless it says otherwise.
    #[arg(value_name = "DIR", group = "again")]
    folder: OsString,

    /// File to write [default: certificate.json in the run folder]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Number of episodes to run again; the certificate says if it is 0
    #[arg(long, value_name = "K", default_value_t = 8)]
    rerun: usize,

    /// Certify a run that is incomplete or has findings of `rrun verify`; the certificate says so
    #[arg(long)]
    partial: bool,

    #[command(flatten)]
    again: AgainArgs,
}

pub(super) fn run(args: &CertifyArgs) -> anyhow::Result<ExitCode> {
    let (folder, plan) = open(&args.folder)?;
    let mut certificate = certified(args, &folder, plan)?;
    let mut agrees = true;
    if args.rerun > 0 {
        let whose = format!("the plan of `{}`", folder.root().display());
        let (count, seed) = (args.rerun, &certificate.sha256);
        let again = args.again.run(&certificate, &whose, count, seed)?;
        for wrong in &again.findings.wrong {
            print_line(format_args!("wrong: {wrong}"))?;
        }
        let count = counted(again.sample.episodes.len(), "episode");
        print_line(format_args!("run again: {count}, by {}", again.by))?;
        agrees = again.findings.wrong.is_empty();
        certificate.sample = Some(again.sample);
    }
    let path = args.output.clone().unwrap_or_else(|| folder.certificate());
    write(&path, &certificate)?;
    tell(&certificate, &path.display().to_string())?;
    Ok(ExitCode::from(u8::from(!agrees)))
}

/// Makes the certificate, without a sample.
fn certified(args: &CertifyArgs, folder: &RunFolder, plan: RunPlan) -> anyhow::Result<Certificate> {
    let name = folder.root().display();
    let refused = || format!("`{name}` cannot be certified");
    let merged = merged(folder, plan)?;
    if let Some(who) = merged.writer() {
        bail!("{}: the run is under way: {who}", refused());
    }
    let findings = verify::findings(folder, &merged)?;
    let certificate = certificate::make(folder, &merged, |_| true, findings);
    let certificate = certificate.with_context(refused)?;
    let Contents {
        complete, findings, ..
    } = &certificate.contents;
    if !complete && !args.partial {
        let more = if findings.len() > NAMED { "; …" } else { "" };
        let first = findings[..findings.len().min(NAMED)].join("; ");
        bail!(
            "{}: {first}{more}\n`rrun verify {name}` lists all findings; with --partial, the \
             certificate has them and says that it is incomplete",
            refused()
        );
    }
    Ok(certificate)
}

fn write(path: &Path, certificate: &Certificate) -> anyhow::Result<()> {
    let named = || format!("cannot write `{}`", path.display());
    let text = serde_json::to_vec_pretty(certificate).with_context(named)?;
    ensure!(
        text.len() as u64 <= MAX_BYTES,
        "the certificate would have {} bytes, expected at most {MAX_BYTES}; certify parts of the run",
        text.len()
    );
    write_whole(path, &text).with_context(named)
}

fn tell(certificate: &Certificate, path: &str) -> anyhow::Result<()> {
    let contents = &certificate.contents;
    print_line(format_args!(
        "{} of {} solved",
        contents.rates.successes,
        counted(contents.rates.episodes, "episode")
    ))?;
    for files in &contents.policies {
        let (policy, sha256) = (&files.policy_type, &files.sha256);
        print_line(format_args!(
            "policy: {policy} `{}`, SHA-256 {sha256}",
            files.path
        ))?;
    }
    match certificate.sample_agreement() {
        None => print_line("sample: no episode was run again (--rerun 0)")?,
        Some((same, all)) => print_line(format_args!(
            "sample: {same} of {all} came out the same again"
        ))?,
    }
    for finding in &contents.findings {
        print_line(format_args!("incomplete: {finding}"))?;
    }
    print_line(format_args!("certificate: {path}"))?;
    print_line(format_args!("SHA-256:     {}", certificate.sha256))?;
    Ok(())
}
