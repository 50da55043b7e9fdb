//! `rrun certify DIR`: writes one file from which others can check the result of a run.
//!
//! ```text
//! run folder ─► verify ─► certificate ─► SHA-256 ─► sample, run again from the certificate alone
//!                                                    └─► certificate.json
//! ```

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use jobs::count::counted;
use jobs::layout::{RunFolder, write_whole};
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use report::Merged;
use report::certificate::{self, Certificate, MAX_BYTES, Sample, sample};

use crate::tools::rerun::{RerunArgs, RerunRequest, refused};
use crate::tools::{open, print_line, under_way, verify};

/// Findings that are named when a run is refused; `rrun verify` lists all.
const NAMED: usize = 5;

/// Write a certificate of a run: what was run, where, and what came out of every episode, in one
/// file that others can check and run again with `rrun verify`.
///
/// A sample of the episodes is run again first. Which ones follows from the hash of the results.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("again"))]
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
    sample: usize,

    /// Certify a run that is incomplete or has findings of `rrun verify`; the certificate says so
    #[arg(long)]
    partial: bool,

    #[command(flatten)]
    again: RerunArgs,
}

pub(super) fn run(args: &CertifyArgs) -> anyhow::Result<ExitCode> {
    let (folder, plan) = open(&args.folder)?;
    let mut certificate = certified(args, &folder, plan)?;
    let mut agrees = true;
    if args.sample > 0 {
        let (sample, does_agree) = run_sample(args, &folder, &certificate)?;
        certificate.sample = Some(sample);
        agrees = does_agree;
    }
    let path = args.output.clone().unwrap_or_else(|| folder.certificate());
    write(&path, &certificate)?;
    tell(&certificate, &path.display().to_string())?;
    Ok(if agrees {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Makes the certificate, without a sample.
fn certified(args: &CertifyArgs, folder: &RunFolder, plan: RunPlan) -> anyhow::Result<Certificate> {
    let name = folder.root().display();
    let refused =
        |reason: &dyn Display| Refusal::at(format_args!("`{name}` cannot be certified"), reason);
    let merged = Merged::new(plan, under_way::journals(folder)?)?;
    if let Some(who) = merged.writer() {
        return Err(refused(&format_args!("the run is under way: {who}")).into());
    }
    let findings = verify::findings(folder, &merged)?;
    let certificate = certificate::make(folder, &merged, findings).map_err(|err| refused(&err))?;
    if !certificate.contents.complete && !args.partial {
        let findings = certificate.contents.findings;
        let more = if findings.len() > NAMED { "; …" } else { "" };
        let first = findings[..findings.len().min(NAMED)].join("; ");
        return Err(refused(&format_args!(
            "{first}{more}\n`rrun verify {name}` lists all findings; with --partial, the \
             certificate has them and says that it is incomplete"
        ))
        .into());
    }
    Ok(certificate)
}

/// Runs the sample again, from the certificate alone. Returns whether all episodes agree.
fn run_sample(
    args: &CertifyArgs,
    folder: &RunFolder,
    certificate: &Certificate,
) -> anyhow::Result<(Sample, bool)> {
    let chosen = sample::choose(&certificate.contents, args.sample, &certificate.sha256);
    let plan = certificate::plan(certificate).map_err(refused)?;
    let again = args.again.run(&RerunRequest {
        whose: format!("the plan of `{}`", folder.root().display()),
        asked: "--sample",
        plan: &plan,
        chosen: &chosen,
        world_size: certificate.contents.run.world_size,
        machine: &certificate.machine(),
    })?;
    let sample = Sample {
        ranks: again.ranks,
        environments: again.envs,
        machines: certificate::machines(&again.merged),
        episodes: sample::repeated(&chosen, &again.outcomes),
    };
    let before = sample::results(certificate, &chosen);
    let differences = report::verify::rerun::differences(&before, &again.outcomes);
    for difference in &differences {
        print_line(format_args!("wrong: {difference}"))?;
    }
    let agrees = differences.is_empty();
    let kept = again.remove_if(agrees)?;
    let count = counted(sample.episodes.len(), "episode");
    print_line(format_args!(
        "run again: {count}, by {}{kept}",
        again.place()
    ))?;
    Ok((sample, agrees))
}

fn write(path: &std::path::Path, certificate: &Certificate) -> anyhow::Result<()> {
    let named =
        |err: std::io::Error| Refusal::at(format_args!("cannot write `{}`", path.display()), err);
    let text = serde_json::to_vec_pretty(certificate).map_err(|err| named(err.into()))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Refusal::new(format_args!(
            "the certificate would have {} bytes, expected at most {MAX_BYTES}; certify parts of \
             the run",
            text.len()
        ))
        .into());
    }
    write_whole(path, &text).map_err(named)?;
    Ok(())
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
        None => print_line("sample: no episode was run again (--sample 0)")?,
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
