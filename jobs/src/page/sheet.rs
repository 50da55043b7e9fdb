//! A table with a line for each job, which can be sorted and filtered where there is a script, and read where there is
//! none.

use maud::{Markup, PreEscaped, html};

use super::grid::Tally;
use super::link::clip;
use super::{cut, number};
use crate::job::Status;
use crate::report::{JobReport, Report};

/// Jobs that are shown.
pub(super) const MOST_JOBS: usize = 500;

/// What a table is called, and its columns.
pub(super) struct Sheet {
    pub(super) name: &'static str,
    pub(super) columns: &'static [Column],
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

impl Sheet {
    /// The table, `row` being the line of a job.
    pub(super) fn draw(&self, report: &Report, row: impl Fn(&JobReport) -> Markup) -> Markup {
        let (jobs, rest) =
            (shown(report), "those with errors or missing episodes come first, report.json has them all.");
        html! {
            div.jobs {
                p.filter {
                    label { "Filter " input type="search" placeholder="name, task, policy, status" autocomplete="off"; }
                    output { (number::count(jobs.len() as u64)) " jobs" }
                }
                div.scroll role="region" aria-label=(self.name) tabindex="0" {
                    table.sortable {
                        thead { tr { @for Column { name, class, title } in self.columns {
                            th scope="col" class=(class) title=[title] { (name) }
                        } } }
                        tbody { @for job in &jobs { (row(job)) } }
                    }
                }
                (cut(jobs.len(), report.per_job.len(), "jobs", rest))
            }
        }
    }
}

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

/// A number, and what it is sorted by.
pub(super) fn value(by: Option<f64>, text: &str) -> Markup {
    html! { td.n data-v=[by.map(|by| format!("{by:.6}"))] { (text) } }
}

/// A name, which wraps where names are joined.
pub(super) fn title(name: &str) -> Markup {
    let clipped = clip(name, 80);
    let parts: Vec<_> = clipped.split_inclusive(['_', '-', '/']).collect();
    html! { @for part in parts { (part) (PreEscaped("<wbr>")) } }
}
