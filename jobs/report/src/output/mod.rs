//! Writes the files of a report.

use std::fs::File;
use std::io::{self, Write};

use jobs::files::FileVersion;
use jobs::journal::EPISODE;
use jobs::launch::PlanLock;
use jobs::layout::{RunFolder, replace, write_whole, write_whole_with};
use jobs::{seed, threads};
use serde_json::{Value, json};

use crate::merged::episode;
use crate::merged::record::EpisodeRecord;
use crate::output::eval_info::EvalInfo;
use crate::sections::variations::EpisodePair;
use crate::{Context, JobReport, Merged, Report, page};

mod arena;
mod eval_info;

/// Builds the report and writes `report.json`, `final_benchmark_report.json`, `report.html`,
/// `metrics.json`, `eval_info.json` and `episodes.jsonl`; `variations.jsonl` if jobs have variants;
/// if the plan asks for them, Arena's files, too. Each file is replaced atomically.
///
/// # Errors
/// Returns the errors of the file system; earlier files stay intact then.
pub fn write(folder: &RunFolder, merged: &Merged, context: Context) -> io::Result<Report> {
    let report = Report::of(merged, context)?;
    write_merged(folder, merged, &report, None)?;
    Ok(report)
}

/// Writes the files of a report that was already built. Returns false, and writes nothing, if
/// another process has replaced `report.json` since it had this version: a report that was read
/// before that one must not replace it.
///
/// # Errors
/// As [`write`].
pub fn write_merged(
    folder: &RunFolder,
    merged: &Merged,
    report: &Report,
    version: Option<FileVersion>,
) -> io::Result<bool> {
    let _lock = PlanLock::to_change(folder)?;
    if version.is_some_and(|version| FileVersion::of(&folder.report()) != version) {
        return Ok(false);
    }
    // The file is as large as the journals and can be written again from them at any time, so it is
    // not synced to the disk.
    replace(&folder.episodes(), |file| merged.write_episodes(file))?;
    if merged.has_variants() {
        replace(&folder.variations(), |file| merged.write_variations(file))?;
    }
    let metrics = metrics_by_job(report);
    write_whole(&folder.metrics(), &serde_json::to_vec_pretty(&metrics)?)?;
    page::write(folder, report)?;
    if arena::is_wanted(&merged.plan) {
        arena::write(folder, merged, report)?;
    }
    write_whole_with(&folder.eval_info(), |file| {
        Ok(serde_json::to_writer(file, &EvalInfo::new(merged, report))?)
    })?;
    write_whole_with(&folder.final_benchmark_report(), |file| {
        Ok(serde_json::to_writer_pretty(file, report)?)
    })?;
    // Copying the file is faster than serializing the report again. It comes last.
    write_whole_with(&folder.report(), |file| {
        io::copy(&mut File::open(folder.final_benchmark_report())?, file).map(drop)
    })?;
    Ok(true)
}

/// Returns `{job: {metric: value}}` for the jobs that were run.
fn metrics_by_job(report: &Report) -> Value {
    let ran = report.per_job.iter().filter(|job| job.rates.episodes > 0);
    let metrics = |job: &JobReport| (job.name.clone(), Value::from_iter(job.rates.metrics()));
    ran.map(metrics).collect()
}

/// Episodes that a thread copies at once: about 1 MiB.
const PART: usize = 1024;

impl Merged {
    /// Writes `episodes.jsonl`: the episodes that count, one per line, ordered by job and number. A
    /// line is copied from its journal, without the `type` field.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn write_episodes(&self, mut to: impl Write) -> io::Result<()> {
        let jobs = self.state.jobs.iter();
        let parts: Vec<_> = jobs.flat_map(|job| job.episodes.chunks(PART)).collect();
        let copied = |part: &&[EpisodeRecord], _: &mut Vec<u8>| -> io::Result<Vec<u8>> {
            let (mut reader, mut lines) = (self.journals.reader(), Vec::new());
            for record in *part {
                let line = reader.line(record.place)?;
                match line.strip_prefix(EPISODE) {
                    Some(rest) => {
                        lines.push(b'{');
                        lines.extend_from_slice(rest);
                    }
                    None => serde_json::to_writer(&mut lines, &episode(line)?)?,
                }
                lines.push(b'\n');
            }
            Ok(lines)
        };
        threads::in_order(&parts, copied, |_, lines| to.write_all(&lines))
    }
}

impl Merged {
    /// Returns whether the plan has variants, so that there are pairs to write.
    fn has_variants(&self) -> bool {
        self.plan.jobs.iter().any(|job| job.variant.is_some())
    }

    /// Writes `variations.jsonl`: each episode of a variant beside the same episode of its control,
    /// so that the outcomes of a variant can be shared as a vector. An episode that ended with an
    /// error has neither success, return nor length.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    fn write_variations(&self, to: &mut impl Write) -> io::Result<()> {
        let success = |record: &EpisodeRecord| record.outcome.map(|scored| scored.solved);
        for job in self.variant_jobs() {
            for EpisodePair { control, variant } in self.pairs_of(&job) {
                let line = json!({
                    "job": job.control.name,
                    "variant": job.variant.name,
                    "groups": job.variant.groups,
                    "policy_type": job.job.policy_type,
                    "episode": control.episode,
                    "seed": seed::episode(self.plan.seed, job.control, control.episode),
                    "control_success": success(control),
                    "control_return": control.is_scored().then_some(control.return_),
                    "control_length": control.is_scored().then_some(control.length),
                    "variant_success": success(variant),
                    "variant_return": variant.is_scored().then_some(variant.return_),
                    "variant_length": variant.is_scored().then_some(variant.length),
                });
                writeln!(to, "{line}")?;
            }
        }
        Ok(())
    }
}
