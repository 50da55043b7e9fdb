//! `rrun verify DIR`: checks that everything exists and is complete; `rrun verify CERTIFICATE`
//! checks a certificate by itself.
//!
//! ```text
//! plan, journals ─► report::verify (episodes, seeds, settings) ─► per job: files and their contents
//!                                                                  ├─► dataset (HDF5), lerobot
//!                                                                  └─► video (mp4)
//! certificate ─► hash, coverage, rates, sample
//! --rerun K ─► K episodes of either, run again
//! ```

mod dataset;
mod lerobot;
mod video;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use jobs::count::counted;
use jobs::job::{Job, Length, Status};
use jobs::layout::{RecordFormat, RunFolder};
use jobs::plan::RunPlan;
use jobs::table::Table;
use jobs::{format, random, threads};
use report::certificate::sample::probability_of_finding;
use report::certificate::{self, Certificate, CertifiedJob, RepeatedEpisode};
use report::stats::SolvedRate;
use report::verify::{self, ExpectedDemo, Findings, JobAudit};
use report::{Context, JobReport, Merged, Report};
use serde_json::Value;

use crate::tools::again::AgainArgs;
use crate::tools::{merged, open, print, print_line};
use dataset::NamedDemos;

/// Check that every episode of the plan exists once, and that every dataset and video that the
/// journals name exists and is complete; or check a certificate of `rrun certify`. Exit with 1 if
/// something is wrong.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// Run folder, or certificate
    #[arg(value_name = "DIR|CERTIFICATE")]
    subject: OsString,

    /// Check what datasets contain, without reading their values
    #[arg(long)]
    no_values: bool,

    /// Run K episodes again on this machine, with other numbers of ranks and environments, and
    /// compare the results bit for bit
    #[arg(long, value_name = "K", group = "again",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    rerun: Option<usize>,

    /// Text that chooses the episodes of --rerun [default: random]
    #[arg(long, value_name = "TEXT", requires = "rerun")]
    rerun_seed: Option<String>,

    #[command(flatten)]
    again: AgainArgs,
}

pub(super) fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let path = Path::new(&args.subject);
    if !path.is_file() {
        return verify_folder(args);
    }
    ensure!(!args.no_values, "--no-values is for run folders");
    verify_certificate(path, args)
}

impl VerifyArgs {
    /// Runs the episodes of `--rerun` again, and adds what differs to the findings.
    fn run_again(
        &self,
        certificate: &Certificate,
        whose: &str,
        findings: &mut Findings,
    ) -> anyhow::Result<Vec<RepeatedEpisode>> {
        let seed = match &self.rerun_seed {
            Some(seed) => seed.clone(),
            None => random::hex::<8>()?,
        };
        let again = self
            .again
            .run(certificate, whose, self.rerun.unwrap_or(0), &seed)?;
        findings.add(again.findings);
        let episodes = again.sample.episodes;
        let count = counted(episodes.len(), "episode");
        let note = format!("run again: {count}, chosen by `{seed}`, by {}", again.by);
        findings.notes.push(note);
        Ok(episodes)
    }

    /// Runs episodes of a run folder again, of those jobs whose results are the same again.
    fn run_folder_again(
        &self,
        folder: &RunFolder,
        merged: &Merged,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let is_counted = |job: &Job| matches!(job.length, Length::Episodes(_));
        let wanted = |job: &Job| is_counted(job) && job.is_repeatable();
        ensure!(
            merged.plan.jobs.iter().any(wanted),
            "no episode can be run again: there is no job with num_episodes whose latency is not \
             measured"
        );
        let certificate = certificate::make(folder, merged, wanted, Vec::new())
            .context("the episodes cannot be run again")?;
        let whose = format!("the plan of `{}`", folder.root().display());
        let episodes = self.run_again(&certificate, &whose, findings)?;
        let is_same = |one: &RepeatedEpisode| certificate.difference(one).is_none();
        if episodes.iter().all(is_same) {
            let note = "they came out the same, to the last bit";
            findings.notes.push(note.to_owned());
        }
        let jobs = merged.plan.jobs.iter();
        let measured = jobs.filter(|job| !job.is_repeatable());
        let measured: Vec<_> = measured.map(|job| job.name.as_str()).collect();
        if !measured.is_empty() {
            let measured = measured.join(", ");
            let note = format!("not run again, because latency is measured: {measured}");
            findings.notes.push(note);
        }
        Ok(())
    }
}

fn verify_folder(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let (folder, plan) = open(&args.subject)?;
    let merged = merged(&folder, plan)?;
    let at_work = merged.writer();
    if let Some(who) = &at_work {
        print_line(format_args!("the run is under way: {who}"))?;
    }
    let (is_over, values) = (at_work.is_none(), !args.no_values);
    let run = VerifiedRun::new(&folder, &merged, values, is_over);
    let (rows, mut findings) = run.audit()?;
    let head = [
        "Job",
        "Episodes",
        "Errors",
        "Datasets",
        "Demonstrations",
        "Videos",
        "Findings",
    ];
    print(Table::first(head, rows, "job", "").grid())?;
    if args.rerun.is_some() {
        args.run_folder_again(&folder, &merged, &mut findings)?;
    }
    let text = if is_over {
        "is all there"
    } else {
        "has no findings so far"
    };
    conclude(&findings, &folder.root().display().to_string(), text)
}

/// Prints notes, findings and the conclusion: `good` if there are no findings.
fn conclude(findings: &Findings, subject: &str, good: &str) -> anyhow::Result<ExitCode> {
    for note in &findings.notes {
        print_line(format_args!("note: {note}"))?;
    }
    let wrong = &findings.wrong;
    for wrong in wrong {
        print_line(format_args!("wrong: {wrong}"))?;
    }
    if wrong.is_empty() {
        print(format_args!("`{subject}` {good}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let count = counted(wrong.len(), "finding");
    print(format_args!("{count} in `{subject}`"))?;
    Ok(ExitCode::FAILURE)
}

/// Returns the findings of a run that is over, as `rrun verify --no-values` has them.
pub(super) fn findings(folder: &RunFolder, merged: &Merged) -> anyhow::Result<Vec<String>> {
    let run = VerifiedRun::new(folder, merged, false, true);
    Ok(run.audit()?.1.wrong)
}

struct VerifiedRun<'a> {
    folder: &'a RunFolder,
    merged: &'a Merged,
    values: bool,
    is_over: bool,
    named: NamedDemos<'a>,
}

impl<'a> VerifiedRun<'a> {
    fn new(folder: &'a RunFolder, merged: &'a Merged, values: bool, is_over: bool) -> Self {
        Self {
            folder,
            merged,
            values,
            is_over,
            named: NamedDemos::of(folder),
        }
    }

    /// Returns a row for each job, and what was found.
    fn audit(&self) -> anyhow::Result<(Vec<[String; 7]>, Findings)> {
        let report = Report::of(self.merged, Context::default())?;
        let mut findings = verify::run(self.merged);
        let mut rows = Vec::new();
        let work: Vec<_> = self.merged.plan.jobs.iter().zip(&report.per_job).collect();
        let one = |(job, report): &(&Job, &JobReport), _: &mut Vec<u8>| self.row(job, report);
        threads::in_order(&work, one, |_, (row, of_job)| {
            findings.add(of_job);
            rows.push(row);
            Ok(())
        })?;
        Ok((rows, findings))
    }

    /// Returns the row of a job, and its findings.
    fn row(&self, job: &Job, report: &JobReport) -> io::Result<([String; 7], Findings)> {
        let mut audit = verify::job(self.merged, job)?;
        let mut findings = std::mem::take(&mut audit.findings);
        let unfinished = std::mem::take(&mut audit.unfinished);
        if self.is_over {
            findings.wrong.splice(..0, unfinished);
        } else {
            let unfinished = unfinished.into_iter();
            let noted = unfinished.map(|text| format!("unfinished: {text}"));
            findings.notes.extend(noted);
        }
        for (file, demos) in &self.datasets(job, &audit)? {
            findings.add(self.dataset(file, demos)?.of_file(file));
        }
        for (file, spans) in &audit.videos {
            let path = self.path(file);
            let found = present(&path).unwrap_or_else(|| video::check(&path, spans));
            findings.add(found.of_file(file));
        }
        let short = environments(&self.merged.plan, job, report, &audit);
        findings.wrong.extend(short);
        let expected = audit.expected.map(|expected| expected.to_string());
        let expected = expected.unwrap_or_else(|| "?".to_owned());
        let demos: usize = audit.datasets.values().map(Vec::len).sum();
        let row = [
            job.name.clone(),
            format!("{} of {expected}", audit.episodes),
            audit.errors.to_string(),
            audit.datasets.len().to_string(),
            demos.to_string(),
            audit.videos.len().to_string(),
            findings.wrong.len().to_string(),
        ];
        Ok((row, findings))
    }

    /// Returns the datasets that the journals name with their demonstrations, and those in the
    /// folder of the job that no line names.
    fn datasets<'d>(
        &self,
        job: &Job,
        audit: &'d JobAudit,
    ) -> io::Result<BTreeMap<String, &'d [ExpectedDemo]>> {
        let found = self.folder.datasets(&job.name)?.into_iter();
        let found = found.map(|dataset| (self.folder.relative(&dataset.path), &[][..]));
        let named = audit.datasets.iter();
        let named = named.map(|(file, demos)| (file.clone(), demos.as_slice()));
        Ok(found.chain(named).collect())
    }

    fn dataset(&self, file: &str, demos: &[ExpectedDemo]) -> io::Result<Findings> {
        let path = self.path(file);
        if let Some(missing) = present(&path) {
            return Ok(missing);
        }
        let checked = match RecordFormat::of_path(&path) {
            RecordFormat::Hdf5 => dataset::check(&path, demos, self.values),
            RecordFormat::Lerobot => lerobot::check(&path, demos, self.is_over),
        };
        match self.is_over {
            true => self.named.judge(file, checked),
            // The line of a demonstration follows it.
            false => Ok(checked.findings),
        }
    }

    /// Returns the path of a file that the journals name relative to the run folder, or absolute.
    fn path(&self, file: &str) -> PathBuf {
        self.folder.root().join(file)
    }
}

/// Returns `None` if a file exists, otherwise the finding that it does not.
fn present(path: &Path) -> Option<Findings> {
    let wrong = vec!["is missing".to_owned()];
    (!path.exists()).then(|| Findings {
        wrong,
        notes: Vec::new(),
    })
}

/// Returns a finding if an undisturbed job has fewer videos than environments; such a job films
/// every environment, unless it has fewer episodes.
fn environments(plan: &RunPlan, job: &Job, report: &JobReport, audit: &JobAudit) -> Option<String> {
    let is_undisturbed = plan.resumed_from.is_empty()
        && report.attempts == 1
        && report.status == Status::Completed
        && audit.errors == 0
        && report.rates.episodes == audit.episodes;
    let stems: BTreeSet<&str> = audit.videos.keys().map(|file| stem(file)).collect();
    let episodes = usize::try_from(audit.episodes).unwrap_or(usize::MAX);
    let (wanted, count) = (job.num_envs.min(episodes), stems.len());
    let is_short = is_undisturbed && (1..wanted).contains(&count);
    is_short.then(|| format!("{}: {count} videos of {wanted} environments", job.name))
}

/// Returns the name of a video without its extension and part number.
fn stem(file: &str) -> &str {
    let stem = file.strip_suffix(".mp4").unwrap_or(file);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    stem.rsplit_once("_part")
        .filter(|(_, part)| is_number(part))
        .map_or(stem, |(stem, _)| stem)
}

fn verify_certificate(path: &Path, args: &VerifyArgs) -> anyhow::Result<ExitCode> {
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
        let episodes = args.run_again(&certificate, &format!("`{shown}`"), &mut findings)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_video_are_one() {
        let stems = ["a/x_env0.mp4", "a/x_env0_part2.mp4", "a/my_part_env1.mp4"].map(stem);
        assert_eq!(stems, ["a/x_env0", "a/x_env0", "a/my_part_env1"]);
    }
}
