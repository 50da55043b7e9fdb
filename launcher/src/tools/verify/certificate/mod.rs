//! `rrun verify CERTIFICATE`: checks a certificate by itself, and with `--rerun` by running episodes
//! again.
//!
//! ```text
//! certificate ─► hash, coverage, rates, sample ─► findings
//!            └─► --rerun K: jobs, seeds ─► rrun eval on this machine ─► the same results?
//! ```

mod again;
mod policies;

use std::path::Path;
use std::process::ExitCode;

use jobs::format;
use jobs::table::Table;
use report::certificate::{Certificate, CertifiedJob};
use report::stats::SolvedRate;
use report::verify::Findings;
use serde_json::Value;

use crate::tools::paths::PathMapping;
use crate::tools::print;
use crate::tools::rerun::RerunArgs;
use crate::tools::verify::conclude;

/// Options for certificates.
#[derive(Debug, clap::Args)]
pub(super) struct CertificateArgs {
    /// Of a certificate, run K episodes again on this machine, and compare the results bit for bit
    #[arg(long, value_name = "K", group = "again",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rerun: Option<usize>,

    /// Text that chooses the episodes of --rerun [default: random]
    #[arg(long, value_name = "TEXT", requires = "rerun")]
    rerun_seed: Option<String>,

    /// Where the policy is on this machine; OLD is its path in the certificate, if that has several
    /// policies. The files must have the hash that the certificate has
    #[arg(long, value_name = "[OLD=]PATH", requires = "rerun")]
    policy: Vec<String>,

    /// Where another file or folder that the certificate names is on this machine, for example a
    /// simulator; may be repeated
    #[arg(long = "path", value_name = "THERE=HERE", requires = "rerun")]
    paths: Vec<PathMapping>,
}

impl CertificateArgs {
    /// Returns the name of an option that was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        self.rerun.is_some().then_some("--rerun")
    }
}

pub(super) fn run(
    path: &Path,
    args: &CertificateArgs,
    rerun: &RerunArgs,
) -> anyhow::Result<ExitCode> {
    let shown = path.display().to_string();
    let certificate = Certificate::read(path).map_err(|err| {
        let place = format_args!("`{shown}` is not a certificate that can be checked");
        err.inside(place)
    })?;
    print(table(&certificate))?;
    let mut findings = Findings {
        wrong: certificate.check(),
        notes: vec![format!("SHA-256 of the contents: {}", certificate.sha256)],
    };
    completeness(&certificate, &mut findings);
    findings.notes.push(sample(&certificate));
    // Only what is right in itself is worth the time, and safe to plan with.
    if let (Some(count), true) = (args.rerun, findings.wrong.is_empty()) {
        let again = again::Again {
            count,
            seed: args.rerun_seed.clone(),
            given: &args.policy,
            paths: &args.paths,
        };
        again.run(path, &certificate, rerun, &mut findings)?;
    }
    conclude(&findings, &shown, "holds")
}

fn completeness(certificate: &Certificate, findings: &mut Findings) {
    if certificate.contents.complete {
        return;
    }
    let text = "it is the certificate of an incomplete run";
    findings.notes.push(text.to_owned());
    let of_run = certificate.contents.findings.iter();
    findings
        .notes
        .extend(of_run.map(|finding| format!("finding of its author: {finding}")));
}

fn sample(certificate: &Certificate) -> String {
    match certificate.sample_agreement() {
        None => "its author says of no episode that it was run again".to_owned(),
        Some((same, all)) => format!(
            "its author says that {same} of {all} episodes came out the same when they were run \
             again"
        ),
    }
}

/// Returns the results that the certificate has.
fn table(certificate: &Certificate) -> String {
    let row = |name: &str, policy: &str, rates: &SolvedRate| {
        [
            name.to_owned(),
            policy.to_owned(),
            format!("{} of {}", rates.successes, rates.episodes),
            rates.wilson95.map(format::interval).unwrap_or_default(),
        ]
    };
    let of_job = |job: &CertifiedJob| {
        let policy = job.entry.get("policy_type").and_then(Value::as_str);
        row(job.name(), policy.unwrap_or("?"), &job.rates)
    };
    let contents = &certificate.contents;
    let head = ["Job", "Policy Type", "Solved", "95 % Interval"];
    let mut table = Table::first(head, contents.jobs.iter().map(of_job), "job", "");
    table.push(row("all", "", &contents.rates));
    table.grid()
}
