//! Shows one row per job: status, success rate and files.

use maud::{Markup, html};

use crate::page::bars::{Bar, ruler};
use crate::page::grid::{CellTally, GridLabel, LabelNames};
use crate::page::link::{clip, href, name};
use crate::page::sheet::{Sheet, SheetColumn, numbers, title, value, words};
use crate::{JobReport, Report};
use jobs::format;

/// Maximum number of files linked for a job.
const MOST_FILES: usize = 4;

/// Maximum number of ranks listed for a job.
const MOST_RANKS: usize = 4;

const COLUMNS: &[SheetColumn] = &[
    words("Job"),
    words("Task"),
    words("Policy"),
    words("Status"),
    numbers("Solved", "solved of found episodes"),
    numbers(
        "Rate",
        "solved of found episodes; one that broke counts as not solved",
    ),
    words("95\u{202f}% interval"),
    numbers("Errors", "episodes that broke"),
    numbers("Missing", "expected episodes that were not found"),
    numbers("Steps", "mean steps of an episode"),
    numbers("Return", "mean sum of rewards of an episode"),
    numbers("Max reward", "mean largest reward of an episode"),
    numbers("Tries", "how often the job was started"),
    words("Ranks"),
    words("Files"),
];

pub(super) fn section(report: &Report) -> Markup {
    let names = LabelNames::tasks(report);
    Sheet {
        name: "Jobs",
        columns: COLUMNS,
    }
    .draw(report, |job| row(job, &names))
}

fn row(job: &JobReport, names: &LabelNames) -> Markup {
    let (rates, tally) = (&job.rates, CellTally::from(&job.rates));
    let status = job.status.as_str();
    html! {
        tr {
            th scope="row" { (title(&job.name)) }
            td.task { (task(&names.task(job))) }
            td { (title(&job.policy_type)) }
            td { span class={ "status " (status) } { (status) } (why(job)) }
            (value(Some(rates.successes as f64), &of(rates.successes, rates.episodes)))
            (value(tally.rate(), &tally.rate().map_or_else(String::new, format::percent)))
            (interval(&tally))
            (some(tally.errors))
            (some(tally.missing()))
            (value(rates.mean_length, &rates.mean_length.map_or_else(String::new, format::digits)))
            (value(rates.mean_return, &rates.mean_return.map_or_else(String::new, format::digits)))
            (value(rates.mean_max_reward, &rates.mean_max_reward.map_or_else(String::new, format::digits)))
            (value(Some(job.attempts as f64), &format::count(job.attempts)))
            td { (ranks(&job.ranks)) }
            td.files { (files(job)) }
        }
    }
}

fn task(task: &GridLabel) -> Markup {
    html! {
        @match &task.detail {
            Some(instruction) => { (clip(instruction, 60)) }
            None => { (title(&task.name)) }
        }
    }
}

fn of(part: u64, all: u64) -> String {
    format!("{} of {}", format::count(part), format::count(all))
}

/// Renders a count that should be zero.
fn some(count: u64) -> Markup {
    html! { td class={ "n " @if count > 0 { "bad" } @else { "muted" } } data-v=(count) { (format::count(count)) } }
}

fn interval(tally: &CellTally) -> Markup {
    let Some((bar, wilson)) = Bar::new(tally.rate(), tally.wilson()).zip(tally.wilson()) else {
        return html! { td data-v="-1" {} };
    };
    html! {
        td.ci data-v=(format!("{:.6}", wilson[0])) {
            svg.bar width="72" height="14" aria-hidden="true" { (ruler(14.0)) (bar.draw("all", 4.0, 6.0)) }
            span { (format::interval(wilson)) }
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
    let named: Vec<_> = ranks
        .iter()
        .take(MOST_RANKS)
        .map(usize::to_string)
        .collect();
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
            @if more > 0 { span.muted { "and " (format::count(more)) " more" } }
        }
    };
    html! { (links("data", &job.datasets)) (links("video", &job.videos)) }
}
