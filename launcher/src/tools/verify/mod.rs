//! `rrun verify DIR`: checks that everything exists and is complete.
//!
//! ```text
//! plan, journals ─► report::verify (episodes, seeds, settings) ─► per job: files and their contents
//!                                                                  ├─► dataset (HDF5), lerobot; extra
//!                                                                  └─► video (mp4)
//! certificate ─► certificate (hash, coverage, rates, sample)
//! --rerun K ─► K episodes of either, run again
//! ```

mod certificate;
mod dataset;
mod extra;
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
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::random;
use jobs::record_format::RecordFormat;
use jobs::table::Table;
use jobs::threads;
use report::certificate::{self as certificates, RepeatedEpisode};
use report::verify;
use report::verify::{ExpectedDemo, Findings, JobAudit};
use report::{Context, JobReport, Merged, Report};

use crate::tools::again::{AgainArgs, Original};
use crate::tools::{open, print, print_line, under_way};
use extra::NamedDemos;

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

/// One row of the table.
struct VerifyRow {
    job: String,
    audit: JobAudit,
    datasets: usize,
    demos: usize,
    videos: usize,
    wrong: usize,
}

/// What is in a run, as far as it was checked.
struct Audit {
    rows: Vec<VerifyRow>,
    findings: Findings,
}

pub(super) fn run(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let path = Path::new(&args.subject);
    if !path.is_file() {
        return verify_folder(args);
    }
    ensure!(!args.no_values, "--no-values is for run folders");
    certificate::run(path, args)
}

impl VerifyArgs {
    /// Runs the episodes of `--rerun` again, and adds what differs to the findings.
    fn run_again(
        &self,
        original: Original<'_>,
        findings: &mut Findings,
    ) -> anyhow::Result<Vec<RepeatedEpisode>> {
        let seed = match &self.rerun_seed {
            Some(seed) => seed.clone(),
            None => random::hex::<8>()?,
        };
        let again = self.again.run(original, self.rerun.unwrap_or(0), &seed)?;
        findings.wrong.extend(again.findings.wrong);
        findings.notes.extend(again.findings.notes);
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
        let certificate = certificates::make(folder, merged, wanted, Vec::new())
            .context("the episodes cannot be run again")?;
        let original = Original {
            certificate: &certificate,
            whose: format!("the plan of `{}`", folder.root().display()),
        };
        self.run_again(original, findings)?;
        let jobs = merged.plan().jobs.iter();
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
    let merged = Merged::new(plan, under_way::journals(&folder)?)?;
    let at_work = merged.writer();
    if let Some(who) = &at_work {
        print_line(format_args!("the run is under way: {who}"))?;
    }
    let (is_over, values) = (at_work.is_none(), !args.no_values);
    let Audit { rows, mut findings } = audit(VerifiedRun {
        folder: &folder,
        merged: &merged,
        values,
        is_over,
        named: NamedDemos::of(&folder),
    })?;
    print(shown(&rows))?;
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
    let Findings { wrong, notes } = findings;
    notes
        .iter()
        .try_for_each(|note| print_line(format_args!("note: {note}")))?;
    wrong
        .iter()
        .try_for_each(|wrong| print_line(format_args!("wrong: {wrong}")))?;
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
    let audit = audit(VerifiedRun {
        folder,
        merged,
        values: false,
        is_over: true,
        named: NamedDemos::of(folder),
    })?;
    Ok(audit.findings.wrong)
}

fn audit(site: VerifiedRun) -> anyhow::Result<Audit> {
    let report = Report::of(site.merged, Context::default())?;
    let mut findings = verify::run(site.merged);
    let mut rows = Vec::new();
    let work: Vec<_> = site
        .merged
        .plan()
        .jobs
        .iter()
        .zip(&report.per_job)
        .collect();
    let one = |(job, report): &(&Job, &JobReport), _: &mut Vec<u8>| site.row(job, report);
    threads::in_order(&work, one, |_, mut row| {
        findings.wrong.append(&mut row.audit.findings.wrong);
        findings.notes.append(&mut row.audit.findings.notes);
        rows.push(row);
    })?;
    Ok(Audit { rows, findings })
}

struct VerifiedRun<'a> {
    folder: &'a RunFolder,
    merged: &'a Merged,
    values: bool,
    is_over: bool,
    named: NamedDemos<'a>,
}

impl VerifiedRun<'_> {
    fn row(&self, job: &Job, report: &JobReport) -> io::Result<VerifyRow> {
        let mut audit = verify::job(self.merged, job)?;
        let mut findings = std::mem::take(&mut audit.findings);
        let unfinished = std::mem::take(&mut audit.unfinished);
        if self.is_over {
            findings.wrong.splice(..0, unfinished);
        } else {
            findings.notes.extend(
                unfinished
                    .into_iter()
                    .map(|text| format!("unfinished: {text}")),
            );
        }
        let mut add = |file: &str, found: Findings| {
            findings.wrong.extend(
                found
                    .wrong
                    .into_iter()
                    .map(|wrong| format!("`{file}` {wrong}")),
            );
            findings.notes.extend(
                found
                    .notes
                    .into_iter()
                    .map(|note| format!("`{file}` {note}")),
            );
        };
        for (file, demos) in &self.datasets(job, &audit)? {
            add(file, self.dataset(file, demos)?);
        }
        for (file, spans) in &audit.videos {
            let path = self.path(file);
            add(
                file,
                present(&path).unwrap_or_else(|| video::check(&path, spans)),
            );
        }
        for (file, frames) in &audit.episode_videos {
            let path = self.path(file);
            let span = verify::EpisodeFrames {
                episode: 0,
                first: 0,
                frames: frames.unwrap_or(1),
            };
            add(
                file,
                present(&path).unwrap_or_else(|| video::check(&path, &[span])),
            );
        }
        findings
            .wrong
            .extend(environments(self.merged.plan(), job, report, &audit));
        let (datasets, videos) = (
            audit.datasets.len(),
            audit.videos.len() + audit.episode_videos.len(),
        );
        let demos = audit.datasets.values().map(Vec::len).sum();
        let wrong = findings.wrong.len();
        Ok(VerifyRow {
            job: job.name.clone(),
            audit: JobAudit { findings, ..audit },
            datasets,
            demos,
            videos,
            wrong,
        })
    }

    /// Returns the datasets that the journals name with their demonstrations, and those in the
    /// folder of the job that no line names.
    fn datasets<'a>(
        &self,
        job: &Job,
        audit: &'a JobAudit,
    ) -> io::Result<BTreeMap<String, &'a [ExpectedDemo]>> {
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
    let wanted = job
        .num_envs
        .min(usize::try_from(audit.episodes).unwrap_or(usize::MAX));
    let is_short = is_undisturbed && !stems.is_empty() && stems.len() < wanted;
    is_short.then(|| {
        format!(
            "{}: {} videos of {wanted} environments",
            job.name,
            stems.len()
        )
    })
}

/// Returns the name of a video without its extension and part number.
fn stem(file: &str) -> &str {
    let stem = file.strip_suffix(".mp4").unwrap_or(file);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    stem.rsplit_once("_part")
        .filter(|(_, part)| is_number(part))
        .map_or(stem, |(stem, _)| stem)
}

fn shown(rows: &[VerifyRow]) -> String {
    let head = [
        "Job",
        "Episodes",
        "Errors",
        "Datasets",
        "Demonstrations",
        "Videos",
        "Findings",
    ];
    let cells = |row: &VerifyRow| {
        let expected = row
            .audit
            .expected
            .map_or_else(|| "?".to_owned(), |expected| expected.to_string());
        [
            row.job.clone(),
            format!("{} of {expected}", row.audit.episodes),
            row.audit.errors.to_string(),
            row.datasets.to_string(),
            row.demos.to_string(),
            row.videos.to_string(),
            row.wrong.to_string(),
        ]
    };
    Table::first(head, rows.iter().map(cells), "job", "").grid()
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
