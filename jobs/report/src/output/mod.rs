//! Writes the files of a report.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};

use jobs::files::FileVersion;
use jobs::launch::PlanLock;
use jobs::layout::{RunFolder, replace, write_whole, write_whole_with};
use serde_json::Value;

use crate::output::eval_info::EvalInfo;
use crate::page;
use crate::{Context, JobReport, Merged, Report};

mod arena;
mod episodes;
mod eval_info;
mod variations;

/// Bytes of a report that are written at once.
const BUFFER: usize = 256 * 1024;

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
    write_whole(
        &folder.metrics(),
        &serde_json::to_vec_pretty(&metrics_by_job(report))?,
    )?;
    page::write(folder, report)?;
    if arena::is_wanted(&merged.plan) {
        arena::write(folder, merged, report)?;
    }
    write_whole_with(&folder.eval_info(), |file| {
        let mut file = BufWriter::with_capacity(BUFFER, file);
        serde_json::to_writer(&mut file, &EvalInfo::new(merged, report))?;
        file.flush()
    })?;
    let json = |file: &mut File| {
        let mut file = BufWriter::with_capacity(BUFFER, file);
        serde_json::to_writer_pretty(&mut file, report)?;
        file.flush()
    };
    write_whole_with(&folder.final_benchmark_report(), json)?;
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
