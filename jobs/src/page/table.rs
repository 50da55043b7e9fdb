//! Every job in a line: how it stands, how good it is, and its files.

use maud::{Markup, PreEscaped, html};

use super::bars::{Bar, ruler};
use super::grid::{Label, Names, Tally};
use super::link::{clip, href, name};
use super::{cut, number};
use crate::job::Status;
use crate::report::{JobReport, Report};

/// Jobs that are shown.
pub(super) const MOST_JOBS: usize = 500;

/// Files of a job that are linked.
const MOST_FILES: usize = 4;

/// Ranks of a job that are named.
const MOST_RANKS: usize = 4;

/// Jobs that are shown, in file order. Where there are too many, those that need a look come before the others: failed,
/// not at their end, with errors or missing episodes.
pub(super) fn shown(report: &Report) -> Vec<&JobReport> {
    let needs_a_look = |job: &&JobReport| {
        let tally = Tally::from(&job.rates);
        job.status != Status::Completed || tally.errors > 0 || tally.missing() > 0
    };
    let (first, others): (Vec<_>, Vec<_>) = report.per_job.iter().partition(needs_a_look);
    let mut shown: Vec<_> = first.into_iter().chain(others).take(MOST_JOBS).collect();
    shown.sort_by_key(|job| job.index);
    shown
}

/// A table of jobs that can be sorted and filtered where there is a script, and read where there is none.
pub(super) fn sortable(
    name: &str,
    columns: &[Column],
    jobs: &[&JobReport],
    all: usize,
    row: impl Fn(&JobReport) -> Markup,
) -> Markup {
    let rest = "those with errors or missing episodes come first, report.json has them all.";
    html! {
        div.jobs {
            p.filter {
                label { "Filter " input type="search" placeholder="name, task, policy, status" autocomplete="off"; }
                output { (number::count(jobs.len() as u64)) " jobs" }
            }
            div.scroll role="region" aria-label=(name) tabindex="0" {
                table.sortable {
                    thead { tr { @for Column { name, class, title } in columns {
                        th scope="col" class=(class) title=[title] { (name) }
                    } } }
                    tbody { @for job in jobs { (row(job)) } }
                }
            }
            (cut(jobs.len(), all, "jobs", rest))
        }
    }
}

/// The head of a column.
pub(super) struct Column {
    pub(super) name: &'static str,
    /// `n` where it has numbers.
    pub(super) class: &'static str,
    pub(super) title: Option<&'static str>,
}

/// A column of words.
pub(super) const fn words(name: &'static str) -> Column {
    Column { name, class: "", title: None }
}

/// A column of numbers, and what they say.
pub(super) const fn numbers(name: &'static str, title: &'static str) -> Column {
    Column { name, class: "n", title: Some(title) }
}

const COLUMNS: &[Column] = &[
    words("Job"),
    words("Task"),
    words("Policy"),
    words("Status"),
    numbers("Solved", "solved of found episodes"),
    numbers("Rate", "solved of found episodes; one that broke counts as not solved"),
    words("95\u{202f}% interval"),
    numbers("Errors", "episodes that broke"),
    numbers("Missing", "expected episodes that were not found"),
    numbers("Steps", "mean steps of an episode"),
    numbers("Return", "mean sum of rewards of an episode"),
    numbers("Tries", "how often the job was begun"),
    words("Ranks"),
    words("Files"),
];

pub(super) fn section(report: &Report) -> Markup {
    let shown = shown(report);
    let names = Names::tasks(report);
    sortable("Jobs", COLUMNS, &shown, report.per_job.len(), |job| row(job, &names))
}

fn row(job: &JobReport, names: &Names) -> Markup {
    let (rates, tally) = (&job.rates, Tally::from(&job.rates));
    let status = job.status.as_str();
    html! {
        tr {
            th scope="row" { (title(&job.name)) }
            td.task { (task(&names.task(job))) }
            td { (title(&job.policy_type)) }
            td { span class={ "status " (status) } { (status) } (why(job)) }
            (value(Some(rates.successes as f64), &of(rates.successes, rates.episodes)))
            (value(tally.rate(), &tally.rate().map_or_else(String::new, number::percent)))
            (interval(&tally))
            (some(tally.errors))
            (some(tally.missing()))
            (value(rates.mean_length, &rates.mean_length.map_or_else(String::new, number::digits)))
            (value(rates.mean_return, &rates.mean_return.map_or_else(String::new, number::digits)))
            (value(Some(job.attempts as f64), &number::count(job.attempts)))
            td { (ranks(&job.ranks)) }
            td.files { (files(job)) }
        }
    }
}

fn task(task: &Label) -> Markup {
    html! {
        @match &task.detail {
            Some(instruction) => { (clip(instruction, 60)) }
            None => { (title(&task.name)) }
        }
    }
}

fn of(part: u64, all: u64) -> String {
    format!("{} of {}", number::count(part), number::count(all))
}

/// A number, and what it is sorted by.
pub(super) fn value(by: Option<f64>, text: &str) -> Markup {
    html! { td.n data-v=[by.map(|by| format!("{by:.6}"))] { (text) } }
}

/// A count that should be nothing.
fn some(count: u64) -> Markup {
    html! { td class={ "n " @if count > 0 { "bad" } @else { "muted" } } data-v=(count) { (number::count(count)) } }
}

/// A name, which wraps where names are joined.
pub(super) fn title(name: &str) -> Markup {
    let clipped = clip(name, 80);
    let parts: Vec<_> = clipped.split_inclusive(['_', '-', '/']).collect();
    html! { @for part in parts { (part) (PreEscaped("<wbr>")) } }
}

fn interval(tally: &Tally) -> Markup {
    let Some((bar, wilson)) = Bar::new(tally.rate(), tally.wilson()).zip(tally.wilson()) else {
        return html! { td data-v="-1" {} };
    };
    html! {
        td.ci data-v=(format!("{:.6}", wilson[0])) {
            svg.bar width="72" height="14" aria-hidden="true" { (ruler(14.0)) (bar.draw("all", 4.0, 6.0)) }
            span { (number::interval(wilson)) }
        }
    }
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

fn ranks(ranks: &[usize]) -> String {
    let named: Vec<_> = ranks.iter().take(MOST_RANKS).map(usize::to_string).collect();
    match ranks.len().checked_sub(MOST_RANKS) {
        None | Some(0) => named.join(", "),
        Some(more) => format!("{} and {more} more", named.join(", ")),
    }
}

fn files(job: &JobReport) -> Markup {
    let links = |what: &str, files: &[String]| {
        html! {
            @for (nth, file) in files.iter().take(MOST_FILES).enumerate() {
                a href=(href(file)) title=(name(file)) { @if nth == 0 { (what) } @else { (nth + 1) } } " "
            }
            @let more = files.len().saturating_sub(MOST_FILES) as u64;
            @if more > 0 { span.muted { "and " (number::count(more)) " more" } }
        }
    };
    html! { (links("data", &job.datasets)) (links("video", &job.videos)) }
}
