//! Shows speed: the resources of each job, and what its loop spent time on.

use maud::{Markup, html};

use crate::page::sheet::{Sheet, SheetColumn, numbers, title, value, words};
use crate::{JobReport, Report};
use jobs::format;

const COLUMNS: &[SheetColumn] = &[
    words("Job"),
    numbers(
        "Wall time",
        "over all attempts; of several ranks that share a job, of the busiest",
    ),
    numbers("Env steps", "steps of all environments"),
    numbers("Steps/s", "environment steps per second of wall time"),
    numbers("Episodes/min", "found episodes per minute of wall time"),
    numbers(
        "Policy calls",
        "calls of the policy, each for all environments that are due",
    ),
    numbers(
        "Call p50, ms",
        "milliseconds of a policy call: median, of the slowest rank",
    ),
    numbers(
        "p95, ms",
        "milliseconds of a policy call: one in twenty is slower",
    ),
    numbers(
        "Step p50, ms",
        "milliseconds of a step of all due environments: median, of the slowest rank",
    ),
    numbers(
        "p95, ms",
        "milliseconds of a step of all due environments: one in twenty is slower",
    ),
    numbers(
        "Simulating",
        "share of the wall time in which at least one environment was at work",
    ),
    numbers(
        "Inferring",
        "share of the wall time in which the policy was at work; both overlap",
    ),
    numbers(
        "Waiting",
        "share of the wall time in which the loop waited for files",
    ),
    numbers(
        "Memory",
        "highest resident memory of a rank up to the end of the job",
    ),
    numbers(
        "GPU memory",
        "most memory of a GPU that libtorch held up to the end of the job",
    ),
    numbers(
        "Env memory",
        "most memory that the environments' processes of a rank took together, as it was sampled",
    ),
    numbers(
        "Env GPU memory",
        "most memory of GPUs that these processes held; with ≈ an estimate",
    ),
    numbers(
        "GPU busy",
        "share of the time in which the GPU was busy, with any process",
    ),
];

pub(super) fn section(report: &Report) -> Markup {
    let sum = |part: fn(&JobReport) -> u64| {
        format::count(report.per_job.iter().map(part).fold(0, u64::saturating_add))
    };
    html! {
        p.lead {
            (sum(|job| job.env_steps)) " steps of environments, " (sum(|job| job.policy_calls)) " calls of policies, "
            (sum(|job| job.frames)) " frames. Simulation and inference overlap, so that their shares may add up to more "
            "than 100" (format::THIN) "%."
        }
        (Sheet { name: "Latency and throughput", columns: COLUMNS }.draw(report, row))
    }
}

fn row(job: &JobReport) -> Markup {
    let ms =
        |value_ms: Option<f64>| value(value_ms, &value_ms.map_or_else(String::new, format::millis));
    let share = |seconds: f64| {
        let share = (job.wall_s > 0.0).then(|| seconds / job.wall_s);
        value(
            share,
            &share.map_or_else(String::new, |share| {
                format!("{:.0}{}%", share * 100.0, format::THIN)
            }),
        )
    };
    let episodes = (job.wall_s > 0.0).then(|| job.rates.episodes as f64 / job.wall_s * 60.0);
    let bytes = |bytes: Option<u64>, sign: &str| {
        let text = bytes.map_or_else(
            || "–".to_owned(),
            |bytes| format!("{sign}{}", format::bytes(bytes)),
        );
        value(bytes.map(|bytes| bytes as f64), &text)
    };
    let busy = job.gpu_busy.map_or_else(
        || "–".to_owned(),
        |share| format!("{:.0}{}%", share * 100.0, format::THIN),
    );
    html! {
        tr {
            th scope="row" { (title(&job.name)) }
            (value(Some(job.wall_s), &format::seconds(job.wall_s)))
            (value(Some(job.env_steps as f64), &format::count(job.env_steps)))
            (value(job.steps_per_s, &job.steps_per_s.map_or_else(String::new, format::digits)))
            (value(episodes, &episodes.map_or_else(String::new, format::digits)))
            (value(Some(job.policy_calls as f64), &format::count(job.policy_calls)))
            (ms(job.infer_ms.p50)) (ms(job.infer_ms.p95)) (ms(job.sim_ms.p50)) (ms(job.sim_ms.p95))
            (share(job.sim_busy_s)) (share(job.infer_busy_s)) (share(job.record_wait_s))
            (value(Some(job.peak_rss_bytes as f64), &format::bytes(job.peak_rss_bytes)))
            (bytes(job.peak_vram_bytes, "")) (bytes(job.peak_env_bytes, ""))
            (bytes(job.peak_env_vram_bytes, if job.env_vram_is_estimate { "≈" } else { "" }))
            (value(job.gpu_busy, &busy))
        }
    }
}
