//! Shows one row per job: status, success rate and files, and in a second table the resources of
//! the job, and what its loop spent time on. The tables can be sorted and filtered if scripts are
//! enabled, and read without them.

use jobs::count::listed;
use jobs::format;
use jobs::job::Status;
use maud::{Markup, html};

use crate::page::chart::rate_bar;
use crate::page::parts::{
    Cell, MOST_ROWS, chosen, clip, count, cut, heads, href, known, name, number, table, title,
};
use crate::page::success::{GridLabel, LabelNames};
use crate::stats::Solved;
use crate::{JobReport, Report};

/// Maximum number of files linked, and of ranks listed, for a job.
const MOST: usize = 4;

pub(super) const NAMES: [&str; 3] = ["jobs", "Jobs", "Jobs"];

pub(super) fn section(report: &Report) -> Markup {
    let names = LabelNames::tasks(report);
    let heads = heads([
        "Job",
        "Task",
        "Policy",
        "Status",
        "Solved: solved of found episodes",
        "Rate: solved of found episodes; one that broke counts as not solved",
        "95\u{202f}% interval",
        "Errors: episodes that broke",
        "Missing: expected episodes that were not found",
        "Steps: mean steps of an episode",
        "Return: mean sum of rewards of an episode",
        "Max reward: mean largest reward of an episode",
        "Tries: how often the job was started",
        "Ranks",
        "Files",
    ]);
    of_jobs("Jobs", &heads, report, |job| row(job, &names))
}

/// Renders a table of jobs.
fn of_jobs(
    name: &str,
    heads: &[Cell],
    report: &Report,
    row: impl Fn(&JobReport) -> Vec<Cell>,
) -> Markup {
    let jobs = shown(report);
    html! {
        div.jobs {
            p.filter {
                label { "Filter " input type="search" placeholder="name, task, policy, status" autocomplete="off"; }
                output { (format::count(jobs.len() as u64)) " jobs" }
            }
            (table([name, "sortable"], heads, jobs.iter(), |job| row(job)))
            (cut(report.per_job.len() - jobs.len()))
        }
    }
}

/// Returns the jobs to show, in file order. If there are too many, jobs that need attention are
/// chosen first: those that failed, have not ended, or have errors or missing episodes.
pub(super) fn shown(report: &Report) -> Vec<&JobReport> {
    chosen(&report.per_job, MOST_ROWS, |job| {
        job.status != Status::Completed || job.rates.errors > 0 || job.rates.missing() > 0
    })
}

fn row(job: &JobReport, names: &LabelNames) -> Vec<Cell> {
    let (rates, solved) = (&job.rates, Solved::from(&job.rates));
    let status = format::word(job.status);
    let of = [solved.successes, solved.episodes]
        .map(format::count)
        .join(" of ");
    let ranks: Vec<_> = job.ranks.iter().map(usize::to_string).collect();
    vec![
        title(&job.name).into(),
        Cell::from(task(&names.task(job))).class("task"),
        title(&job.policy_type).into(),
        html! { span class={ "status " (status) } { (status) } (why(job)) }.into(),
        number(Some(solved.successes as f64), |_| of.clone()),
        number(solved.rate(), format::percent),
        interval(solved),
        none_wanted(rates.errors),
        none_wanted(rates.missing()),
        number(rates.mean_length, format::digits),
        number(rates.mean_return, format::digits),
        number(rates.mean_max_reward, format::digits),
        count(job.attempts),
        listed(&ranks, MOST).into(),
        Cell::from(html! { (files("data", &job.datasets)) (files("video", &job.videos)) })
            .class("files"),
    ]
}

fn task(task: &GridLabel) -> Markup {
    match &task.detail {
        Some(instruction) => html! { (clip(instruction, 60)) },
        None => title(&task.name),
    }
}

/// Renders a count that should be zero.
fn none_wanted(found: u64) -> Cell {
    count(found).class(if found > 0 { "n bad" } else { "n muted" })
}

fn interval(solved: Solved) -> Cell {
    let Some(interval) = solved.wilson95() else {
        return Cell::from("").by(Some(-1.0));
    };
    let drawn = html! { (rate_bar(solved, "all", "72")) span { (format::interval(interval)) } };
    Cell::from(drawn).by(Some(interval[0])).class("ci")
}

fn why(job: &JobReport) -> Markup {
    html! {
        @if let Some(error) = &job.error {
            details.why { summary { "why" }
                (clip(error, 600))
                @if let Some(log) = &job.log { " " a href=(href(log)) { "log" } }
            }
        }
    }
}

fn files(what: &str, files: &[String]) -> Markup {
    let more = files.len().saturating_sub(MOST) as u64;
    html! {
        @for (nth, file) in files.iter().take(MOST).enumerate() {
            a href=(href(file)) title=(name(file)) { @if nth == 0 { (what) } @else { (nth + 1) } } " "
        }
        @if more > 0 { span.muted { "and " (format::count(more)) " more" } }
    }
}

pub(super) const SPEED: [&str; 3] = ["speed", "Speed", "Latency and throughput"];

pub(super) fn speed(report: &Report) -> Markup {
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
        (of_jobs("Latency and throughput", &heads, report, resources))
    }
}

fn resources(job: &JobReport) -> Vec<Cell> {
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
