//! The metrics of a run, in Prometheus' text format.

use crate::eval::monitor::view::snapshot::{RankView, RunSnapshot};
use crate::prometheus::Metrics;

/// A metric of the whole run.
struct RunMetric {
    name: &'static str,
    help: &'static str,
    /// `None` if it is not known; then the metric is absent.
    value: fn(&RunSnapshot) -> Option<f64>,
}

/// A metric that each rank has.
struct RankMetric {
    name: &'static str,
    /// Prometheus' type: `counter` or `gauge`.
    kind: &'static str,
    help: &'static str,
    value: fn(&RankView) -> f64,
}

const OF_RUN: [RunMetric; 7] = [
    RunMetric {
        name: "episodes_expected",
        help: "Episodes that the jobs ask for.",
        value: |run| Some(run.expected? as f64),
    },
    RunMetric {
        name: "episodes_solved",
        help: "Episodes that ended in success, earlier launches included.",
        value: |run| Some(run.solved as f64),
    },
    RunMetric {
        name: "episodes_failed",
        help: "Episodes that ended without success or error.",
        value: |run| Some(run.done.saturating_sub(run.solved + run.errors) as f64),
    },
    RunMetric {
        name: "episodes_errored",
        help: "Episodes that an error ended.",
        value: |run| Some(run.errors as f64),
    },
    RunMetric {
        name: "episodes_per_second",
        help: "Episodes per second over the last minute.",
        value: |run| Some(run.rate),
    },
    RunMetric {
        name: "left_seconds",
        help: "Time until the last rank is done, at the present rates.",
        value: |run| Some(run.left?.as_secs_f64()),
    },
    RunMetric {
        name: "jobs_done",
        help: "Jobs, or parts of them, that ranks have ended.",
        value: |run| Some(run.jobs_done as f64),
    },
];

const OF_RANK: [RankMetric; 7] = [
    RankMetric {
        name: "rank_steps_total",
        kind: "counter",
        help: "Steps of a rank's environments.",
        value: |rank| rank.beat.steps as f64,
    },
    RankMetric {
        name: "rank_episodes_total",
        kind: "counter",
        help: "Episodes that a rank has ended.",
        value: |rank| rank.beat.ended as f64,
    },
    RankMetric {
        name: "rank_sim_busy_ratio",
        kind: "gauge",
        help: "Share of time in which environments were at work.",
        value: |rank| rank.sim_busy,
    },
    RankMetric {
        name: "rank_infer_busy_ratio",
        kind: "gauge",
        help: "Share of time in which the policy inferred.",
        value: |rank| rank.infer_busy,
    },
    RankMetric {
        name: "rank_arrived",
        kind: "gauge",
        help: "1 when a rank has nothing left to do.",
        value: |rank| f64::from(u8::from(rank.beat.arrived)),
    },
    RankMetric {
        name: "rank_gpu_used_bytes",
        kind: "gauge",
        help: "Memory of a rank's GPU that is taken.",
        value: |rank| rank.beat.gpu_used as f64,
    },
    RankMetric {
        name: "rank_gpu_total_bytes",
        kind: "gauge",
        help: "Memory of a rank's GPU.",
        value: |rank| rank.beat.gpu_total as f64,
    },
];

/// Returns the metrics of a run as text.
pub fn render(run: &RunSnapshot) -> String {
    let mut metrics = Metrics::new("rrun_");
    for RunMetric { name, help, value } in OF_RUN {
        if let Some(value) = value(run) {
            metrics.one(name, "gauge", help, value);
        }
    }
    for RankMetric {
        name,
        kind,
        help,
        value,
    } in OF_RANK
    {
        let values = run.ranks.iter().map(value).enumerate();
        metrics.by("rank", (name, kind, help), values);
    }
    let busy = run.ranks.iter().enumerate();
    let busy: Vec<_> = busy
        .filter_map(|(rank, view)| Some((rank, view.gpu_busy?)))
        .collect();
    if !busy.is_empty() {
        let help = "Share of time in which a rank's GPU was busy, with any process.";
        metrics.by("rank", ("rank_gpu_busy_ratio", "gauge", help), busy);
    }
    metrics.into_text()
}
