//! Shows one row per job: status, success rate and files. The table can be sorted and filtered if
//! scripts are enabled, and read without them.

use jobs::format;
use jobs::job::Status;
use maud::{Markup, html};

use crate::page::chart::rate_bar;
use crate::page::grid::{GridLabel, LabelNames};
use crate::page::parts::{
    Cell, MOST_ROWS, chosen, clip, count, cut, heads, href, name, number, table, title,
};
use crate::stats::Solved;
use crate::{JobReport, Report};
use jobs::count::listed;

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
pub(super) fn of_jobs(
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
    let status = job.status.as_str();
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
