//! The metrics of a run, in Prometheus' text format.

use crate::eval::monitor::view::snapshot::{RankView, RunSnapshot};
use crate::prometheus::Metrics;

/// Name, type and help of the metrics of the whole run, in the order of their values.
const OF_RUN: [&str; 7] = [
    "episodes_expected gauge Episodes that the jobs ask for.",
    "episodes_solved gauge Episodes that ended in success, earlier launches included.",
    "episodes_failed gauge Episodes that ended without success or error.",
    "episodes_errored gauge Episodes that an error ended.",
    "episodes_per_second gauge Episodes per second over the last minute.",
    "left_seconds gauge Time until the last rank is done, at the present rates.",
    "jobs_done gauge Jobs, or parts of them, that ranks have ended.",
];

/// The same of the metrics that each rank has.
const OF_RANK: [&str; 8] = [
    "rank_steps_total counter Steps of a rank's environments.",
    "rank_episodes_total counter Episodes that a rank has ended.",
    "rank_sim_busy_ratio gauge Share of time in which environments were at work.",
    "rank_infer_busy_ratio gauge Share of time in which the policy inferred.",
    "rank_arrived gauge 1 when a rank has nothing left to do.",
    "rank_gpu_used_bytes gauge Memory of a rank's GPU that is taken.",
    "rank_gpu_total_bytes gauge Memory of a rank's GPU.",
    "rank_gpu_busy_ratio gauge Share of time in which a rank's GPU was busy, with any process.",
];

/// Returns the metrics of a run as text, without those that are not known.
pub fn render(run: &RunSnapshot) -> String {
    let mut metrics = Metrics::new("rrun_");
    let failed = run.done.saturating_sub(run.solved + run.errors);
    let of_run = [
        run.expected.map(|expected| expected as f64),
        Some(run.solved as f64),
        Some(failed as f64),
        Some(run.errors as f64),
        Some(run.rate),
        run.left.map(|left| left.as_secs_f64()),
        Some(run.jobs_done as f64),
    ];
    for (about, value) in OF_RUN.into_iter().zip(of_run) {
        let (name, kind, help) = parts(about);
        let value = value.into_iter();
        value.for_each(|value| metrics.one(name, kind, help, value));
    }
    let of_rank: [fn(&RankView) -> Option<f64>; 8] = [
        |rank| Some(rank.beat.steps as f64),
        |rank| Some(rank.beat.ended as f64),
        |rank| Some(rank.sim_busy),
        |rank| Some(rank.infer_busy),
        |rank| Some(f64::from(u8::from(rank.beat.arrived))),
        |rank| Some(rank.beat.gpu_used as f64),
        |rank| Some(rank.beat.gpu_total as f64),
        |rank| rank.gpu_busy,
    ];
    for (about, value) in OF_RANK.into_iter().zip(of_rank) {
        let values = run.ranks.iter().map(value).enumerate();
        let values: Vec<_> = values
            .filter_map(|(rank, value)| Some((rank, value?)))
            .collect();
        if !values.is_empty() {
            metrics.by("rank", parts(about), values);
        }
    }
    metrics.into_text()
}

fn parts(about: &str) -> (&str, &str, &str) {
    let (name, rest) = about.split_once(' ').unwrap_or_default();
    let (kind, help) = rest.split_once(' ').unwrap_or_default();
    (name, kind, help)
}
