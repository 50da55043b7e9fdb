//! Averages the metrics that policies report themselves (`Episode::metrics`) over the scored
//! episodes of a job.

use std::collections::BTreeMap;
use std::io;

use jobs::job::Job;

use crate::merged::Merged;

/// Returns the means by name, each over the episodes that have the metric. If the first episode of
/// a job has none, the job has none, so that the lines of most jobs are not read again.
pub(crate) fn means(merged: &Merged, job: &Job) -> io::Result<BTreeMap<String, f64>> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut reader = merged.journals.reader();
    for record in merged
        .lines(job.index)
        .episodes
        .iter()
        .filter(|record| record.is_scored())
    {
        let episode = merged.episode(&mut reader, record)?;
        let metrics = &episode.metrics;
        if metrics.is_empty() && sums.is_empty() {
            break;
        }
        for (name, value) in metrics {
            let (sum, count) = sums.entry(name.clone()).or_default();
            (*sum, *count) = (*sum + value, *count + 1.0);
        }
    }
    Ok(sums
        .into_iter()
        .map(|(name, (sum, count))| (name, sum / count))
        .collect())
}
