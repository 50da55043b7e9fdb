//! Shows speed: the resources of each job, and what its loop spent time on.

use jobs::format;
use maud::{Markup, html};

use crate::page::parts::{Cell, count, heads, known, number, title};
use crate::page::table::of_jobs;
use crate::{JobReport, Report};

pub(super) const NAMES: [&str; 3] = ["speed", "Speed", "Latency and throughput"];

pub(super) fn section(report: &Report) -> Markup {
    let sum = |part: fn(&JobReport) -> u64| {
        format::count(report.per_job.iter().map(part).fold(0, u64::saturating_add))
    };
    let heads = heads([
        "Job",
        "Wall time: over all attempts; of several ranks that share a job, of the busiest",
        "Env steps: steps of all environments",
        "Steps/s: environment steps per second of wall time",
        "Episodes/min: found episodes per minute of wall time",
        "Policy calls: calls of the policy, each for all environments that are due",
        "Call p50, ms: milliseconds of a policy call: median, of the slowest rank",
        "p95, ms: milliseconds of a policy call: one in twenty is slower",
        "Step p50, ms: milliseconds of a step of all due environments: median, of the slowest rank",
        "p95, ms: milliseconds of a step of all due environments: one in twenty is slower",
        "Simulating: share of the wall time in which at least one environment was at work",
        "Inferring: share of the wall time in which the policy was at work; both overlap",
        "Waiting: share of the wall time in which the loop waited for files",
        "Memory: highest resident memory of a rank up to the end of the job",
        "GPU memory: most memory of a GPU that libtorch held up to the end of the job",
        "Env memory: most that the environments' processes of a rank took together, when sampled",
        "Env GPU memory: most memory of GPUs that these processes held; with ≈ an estimate",
        "GPU busy: share of the time in which the GPU was busy, with any process",
    ]);
    html! {
        p.lead {
            (sum(|job| job.costs.env_steps)) " steps of environments, " (sum(|job| job.costs.policy_calls)) " calls of policies, "
            (sum(|job| job.costs.frames)) " frames. Simulation and inference overlap, so that their shares may add up to more "
            "than 100" (format::THIN) "%."
        }
        (of_jobs("Latency and throughput", &heads, report, row))
    }
}

fn row(job: &JobReport) -> Vec<Cell> {
    let of_wall = |value: f64| (job.wall_s > 0.0).then(|| value / job.wall_s);
    let share = |seconds: f64| number(of_wall(seconds), whole_percent);
    let bytes = |bytes: Option<u64>, sign: &str| {
        let text = |value: f64| format!("{sign}{}", format::bytes(value as u64));
        known(bytes.map(|bytes| bytes as f64), text)
    };
    let estimate = if job.costs.env_vram_is_estimate {
        "≈"
    } else {
        ""
    };
    let episodes_per_minute = of_wall(job.rates.episodes as f64 * 60.0);
    vec![
        title(&job.name).into(),
        number(Some(job.wall_s), format::seconds),
        count(job.costs.env_steps),
        number(job.steps_per_s, format::digits),
        number(episodes_per_minute, format::digits),
        count(job.costs.policy_calls),
        number(job.infer_ms.p50, format::millis),
        number(job.infer_ms.p95, format::millis),
        number(job.sim_ms.p50, format::millis),
        number(job.sim_ms.p95, format::millis),
        share(job.sim_busy_s),
        share(job.infer_busy_s),
        share(job.costs.record_wait_s),
        bytes(Some(job.costs.peak_rss_bytes), ""),
        bytes(job.costs.peak_vram_bytes, ""),
        bytes(job.costs.peak_env_bytes, ""),
        bytes(job.costs.peak_env_vram_bytes, estimate),
        known(job.gpu_busy, whole_percent),
    ]
}

fn whole_percent(share: f64) -> String {
    format!("{}{}%", (share * 100.0).round() as u64, format::THIN)
}
