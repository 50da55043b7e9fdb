//! The files of a report.

use std::io;

use serde_json::{Map, Value};

use super::{Context, Report, episodes};
use crate::journal::Line;
use crate::layout::{RunFolder, write_whole};
use crate::plan::RunPlan;
use crate::table::metrics;

/// Merges and writes `report.json`, `final_benchmark_report.json`, `metrics.json` and `episodes.jsonl`; each file is
/// replaced in one go.
///
/// # Errors
/// Those of the file system; files that were there before are whole.
pub fn write(folder: &RunFolder, plan: &RunPlan, lines: &[Line], context: Context) -> io::Result<Report> {
    let report = Report::new(plan, lines, context);
    let mut text = Vec::new();
    for episode in episodes(plan, lines) {
        serde_json::to_writer(&mut text, episode)?;
        text.push(b'\n');
    }
    write_whole(&folder.episodes(), &text)?;
    write_whole(&folder.metrics(), &serde_json::to_vec_pretty(&metrics_by_job(&report))?)?;
    let text = serde_json::to_vec_pretty(&report)?;
    write_whole(&folder.final_benchmark_report(), &text)?;
    write_whole(&folder.report(), &text)?;
    Ok(report)
}

/// `{job: {metric: value}}` of the jobs that were run.
fn metrics_by_job(report: &Report) -> Value {
    let ran = report.per_job.iter().filter(|job| job.rates.episodes > 0);
    let values = |job| metrics(job).into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    Value::Object(ran.map(|job| (job.name.clone(), Value::Object(values(job)))).collect::<Map<_, _>>())
}
