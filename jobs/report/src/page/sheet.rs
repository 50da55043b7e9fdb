//! A table with one row per job. It can be sorted and filtered if scripts are enabled, and read
//! without them.

use jobs::format;
use jobs::job::Status;
use maud::{Markup, PreEscaped, html};

use crate::page::cut;
use crate::page::grid::CellTally;
use crate::page::link::clip;
use crate::{JobReport, Report};

/// Maximum number of jobs shown.
pub(super) const MOST_JOBS: usize = 500;

/// Name and columns of a table.
pub(super) struct Sheet {
    pub(super) name: &'static str,
    pub(super) columns: &'static [SheetColumn],
}

/// The heading of a column.
pub(super) struct SheetColumn {
    pub(super) name: &'static str,
    /// CSS class: `n` for numbers.
    pub(super) class: &'static str,
    pub(super) title: Option<&'static str>,
}

/// Returns a column of text.
pub(super) const fn words(name: &'static str) -> SheetColumn {
    SheetColumn {
        name,
        class: "",
        title: None,
    }
}

/// Returns a column of numbers; `title` explains them.
pub(super) const fn numbers(name: &'static str, title: &'static str) -> SheetColumn {
    SheetColumn {
        name,
        class: "n",
        title: Some(title),
    }
}

impl Sheet {
    /// Renders the table; `row` renders the row of a job.
    pub(super) fn draw(&self, report: &Report, row: impl Fn(&JobReport) -> Markup) -> Markup {
        let (jobs, rest) = (
            shown(report),
            "those with errors or missing episodes come first, report.json has them all.",
        );
        html! {
            div.jobs {
                p.filter {
                    label { "Filter " input type="search" placeholder="name, task, policy, status" autocomplete="off"; }
                    output { (format::count(jobs.len() as u64)) " jobs" }
                }
                div.scroll role="region" aria-label=(self.name) tabindex="0" {
                    table.sortable {
                        thead { tr { @for SheetColumn { name, class, title } in self.columns {
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

/// Returns the jobs to show, in file order. If there are too many, jobs that need attention are
/// chosen first: those that failed, have not ended, or have errors or missing episodes.
pub(super) fn shown(report: &Report) -> Vec<&JobReport> {
    let needs_a_look = |job: &&JobReport| {
        let tally = CellTally::from(&job.rates);
        job.status != Status::Completed || tally.errors > 0 || tally.missing() > 0
    };
    let (first, others): (Vec<_>, Vec<_>) = report.per_job.iter().partition(needs_a_look);
    let mut shown: Vec<_> = first.into_iter().chain(others).take(MOST_JOBS).collect();
    shown.sort_by_key(|job| job.index);
    shown
}

/// Renders a number with its sort key.
pub(super) fn value(by: Option<f64>, text: &str) -> Markup {
    html! { td.n data-v=[by.map(|by| format!("{by:.6}"))] { (text) } }
}

/// Renders a name, which may wrap at its separators.
pub(crate) fn title(name: &str) -> Markup {
    let clipped = clip(name, 80);
    let parts: Vec<_> = clipped.split_inclusive(['_', '-', '/']).collect();
    html! { @for part in parts { (part) (PreEscaped("<wbr>")) } }
}
