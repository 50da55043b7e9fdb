//! `rrun verify CERTIFICATE`: checks a certificate by itself, and with `--rerun` by running episodes
//! again.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use jobs::format;
use jobs::table::Table;
use report::certificate::sample::probability_of_finding;
use report::certificate::{Certificate, CertifiedJob, RepeatedEpisode};
use report::stats::SolvedRate;
use report::verify::Findings;
use serde_json::Value;

use crate::tools::again::Original;
use crate::tools::print;
use crate::tools::verify::{VerifyArgs, conclude};

pub(super) fn run(path: &Path, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let shown = path.display().to_string();
    let certificate = Certificate::read(path)
        .with_context(|| format!("`{shown}` is not a certificate that can be checked"))?;
    print(results(&certificate))?;
    let mut findings = Findings {
        wrong: certificate.check(),
        notes: notes(&certificate),
    };
    // Only what is right in itself is worth the time, and safe to plan with.
    if args.rerun.is_some() && findings.wrong.is_empty() {
        let original = Original {
            certificate: &certificate,
            whose: format!("`{shown}`"),
        };
        let episodes = args.run_again(original, &mut findings)?;
        print(comparison(&certificate, &episodes))?;
        findings.notes.push(certainty(&certificate, episodes.len()));
    }
    conclude(&findings, &shown, "holds")
}

fn notes(certificate: &Certificate) -> Vec<String> {
    let mut notes = vec![format!("SHA-256 of the contents: {}", certificate.sha256)];
    let contents = &certificate.contents;
    if !contents.complete {
        notes.push("it is the certificate of an incomplete run".to_owned());
        let of_run = contents.findings.iter();
        notes.extend(of_run.map(|finding| format!("finding of its author: {finding}")));
    }
    notes.push(match certificate.sample_agreement() {
        None => "its author says of no episode that it was run again".to_owned(),
        Some((same, all)) => format!(
            "its author says that {same} of {all} episodes came out the same when they were run \
             again"
        ),
    });
    notes
}

/// Returns the table of the results that the certificate has.
fn results(certificate: &Certificate) -> String {
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

/// Returns the table of the episodes that were run again.
fn comparison(certificate: &Certificate, episodes: &[RepeatedEpisode]) -> String {
    let row = |one: &RepeatedEpisode| {
        let is_same = certificate.difference(one).is_none();
        let text = if is_same { "the same" } else { "different" };
        [
            one.id.job.clone(),
            one.id.episode.to_string(),
            text.to_owned(),
        ]
    };
    let head = ["Job", "Episode", "Run again"];
    Table::first(head, episodes.iter().map(row), "episode", "").grid()
}

/// Returns how likely it was that a changed certificate would have been found.
fn certainty(certificate: &Certificate, sampled: usize) -> String {
    let episodes = certificate.contents.rates.episodes;
    let found = |changed: u64| probability_of_finding(episodes, changed, sampled as u64) * 100.0;
    let tenth = episodes.div_ceil(10);
    let mut text = format!(
        "if one of the {episodes} episodes had been changed, this would have found it with a \
         probability of {:.1} %",
        found(1)
    );
    if tenth > 1 {
        text += &format!("; if {tenth} had been, with {:.1} %", found(tenth));
    }
    text
}
