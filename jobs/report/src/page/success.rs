//! Shows success by task and policy: a table whose cells have a rate, its bar and its interval.
//!
//! A task is an environment. If jobs of one environment have different instructions (LIBERO's tasks
//! come from one factory), each instruction is a task. A policy is a type, and a path if jobs of
//! that type have several, so two checkpoints are never added up. Variants of a job are left out
//! beside it: they are other tasks. Rows and columns beyond the limits are added up in a
//! last one.

use std::collections::{BTreeMap, BTreeSet};

use jobs::format;
use maud::{Markup, html};
use serde_json::Value;

use crate::page::chart::{RATES, axis, rate_bar};
use crate::page::parts::{Cell, clip, heads, name, table};
use crate::stats::Solved;
use crate::{JobReport, OrderedSet, Rates, Report};

pub(super) const NAMES: [&str; 3] = ["success", "Success", "Success by task and policy"];

pub(super) fn section(report: &Report) -> Markup {
    let grid = TaskGrid::new(report);
    let mut heads = heads(["Task"]);
    let head = |policy| Cell::from(html! { (label(policy)) (axis(RATES)) });
    heads.extend(grid.policies.iter().map(head));
    let row = |(row, task): (usize, &GridLabel)| {
        let mut cells = vec![Cell::from(label(task))];
        cells.extend((0..grid.policies.len()).map(|column| cell(grid.cells.get(&(row, column)))));
        cells
    };
    let tasks = grid.tasks.iter().enumerate();
    let mut cells = grid.cells.values();
    let has_errors = cells.any(|jobs| counts(jobs).without_errors().is_some());
    html! {
        p.lead {
            "Solved episodes of all that were found. Bars are rates, lines are 95" (format::THIN) "% Wilson intervals."
            @if has_errors {
                " Where episodes broke there are two: " span.key.all { "of all episodes" }
                ", broken ones as not solved, and " span.key.only { "of those that ran to their end" } "."
            }
            @if report.variations.iter().any(|entry| entry.pairs > 0) {
                " Without " a href="#variations-part" { "variations" } "."
            }
        }
        (table(["Success by task and policy", "matrix"], &heads, tasks, row))
        @if grid.tasks.len() > MOST_TASKS || grid.policies.len() > MOST_POLICIES {
            p.cut { "The last row and column sum up the rest; report.json has them all." }
        }
    }
}

/// Shows what distinguishes a task or policy from others of its name, and the name.
fn label(label: &GridLabel) -> Markup {
    html! {
        @match &label.detail {
            Some(detail) => { (clip(detail, 120)) small { (label.name) } }
            None => { (label.name) }
        }
    }
}

fn cell(jobs: Option<&Vec<&JobReport>>) -> Cell {
    let Some(jobs) = jobs else {
        return Cell::from(html! { span.sr { "not run" } }).class("none");
    };
    let rates = counts(jobs);
    let cell = Cell::from(html! {
        (solved(Solved::from(&rates), "all"))
        @if let Some(only) = rates.without_errors() { (solved(only, "only")) }
        @if jobs.len() > 1 { small { (format::count(jobs.len() as u64)) " jobs" } }
        @if rates.errors > 0 { small.bad { (format::counted(rates.errors, "error", "errors")) } }
        @if rates.missing() > 0 { small.bad { (format::count(rates.missing())) " missing" } }
    });
    match rates.episodes {
        0 => cell.class("none"),
        _ => cell,
    }
}

fn solved(solved: Solved, kind: &str) -> Markup {
    let (Some(rate), Some(interval)) = (solved.rate(), solved.wilson95()) else {
        return html! { "no episode" };
    };
    html! {
        div.numbers {
            b { (format::percent(rate)) }
            small { (format::count(solved.successes)) " of " (format::count(solved.episodes)) }
            small { (format::interval(interval)) }
        }
        (rate_bar(solved, kind, "100%"))
    }
}

/// Maximum number of rows shown one by one.
const MOST_TASKS: usize = 60;

/// Maximum number of columns shown one by one.
const MOST_POLICIES: usize = 8;

/// Returns the counts of the episodes of all these jobs; without rates and means.
pub(super) fn counts(jobs: &[&JobReport]) -> Rates {
    let sum = |of: fn(&Rates) -> u64| jobs.iter().map(|job| of(&job.rates)).sum();
    Rates {
        expected: jobs.iter().map(|job| job.rates.expected).sum(),
        episodes: sum(|rates| rates.episodes),
        scored: sum(|rates| rates.scored),
        successes: sum(|rates| rates.successes),
        errors: sum(|rates| rates.errors),
        ..Rates::default()
    }
}

/// The heading of a row or column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GridLabel {
    /// Environment or policy type, as short as possible.
    pub(super) name: String,
    /// What distinguishes rows or columns of the same name: the instruction of a task, the path of
    /// a policy.
    pub(super) detail: Option<String>,
}

/// The table of tasks by policies.
pub(super) struct TaskGrid<'a> {
    /// Rows, in the order of the jobs file; those beyond the limit are one.
    pub(super) tasks: Vec<GridLabel>,
    /// Columns, in the order of the jobs file; those beyond the limit are one.
    pub(super) policies: Vec<GridLabel>,
    /// The jobs of each cell, by row and column; at least one.
    pub(super) cells: BTreeMap<(usize, usize), Vec<&'a JobReport>>,
}

impl<'a> TaskGrid<'a> {
    pub(super) fn new(report: &'a Report) -> Self {
        let tasks = LabelNames::tasks(report);
        let policies = LabelNames::new(report.per_job.iter().map(policy), "not started");
        let mut cells: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let (mut rows, mut columns) = (OrderedSet::default(), OrderedSet::default());
        for job in report.jobs_under_control() {
            let (row, _) = rows.insert_full(tasks.task(job));
            let (column, _) = columns.insert_full(policies.label(policy(job)));
            let place = (row.min(MOST_TASKS), column.min(MOST_POLICIES));
            cells.entry(place).or_default().push(job);
        }
        Self {
            tasks: first(rows, MOST_TASKS, "tasks"),
            policies: first(columns, MOST_POLICIES, "policies"),
            cells,
        }
    }
}

/// Name, and what may distinguish entries of that name.
type Key<'a> = (&'a str, Option<&'a str>);

fn task(job: &JobReport) -> Key<'_> {
    (&job.environment, job.instruction.as_deref())
}

/// Returns policy type and path. The path is the one that the rank reported; a job that has not
/// begun has none.
fn policy(job: &JobReport) -> Key<'_> {
    let path = job.settings.get("policy_path").and_then(Value::as_str);
    (&job.policy_type, path)
}

/// How rows or columns are named and distinguished.
pub(super) struct LabelNames<'a> {
    /// The details of each name; several of them distinguish its entries.
    details: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// Number of names with each short name.
    short: BTreeMap<&'a str, usize>,
    /// Stands for a detail that is unknown but distinguishes entries.
    unknown: &'static str,
}

impl<'a> LabelNames<'a> {
    /// Collects the names of the tasks of all jobs.
    pub(super) fn tasks(report: &'a Report) -> Self {
        Self::new(report.per_job.iter().map(task), "unknown instruction")
    }

    /// Returns the heading of a job's task.
    pub(super) fn task(&self, job: &JobReport) -> GridLabel {
        self.label(task(job))
    }

    fn new(keys: impl Iterator<Item = Key<'a>>, unknown: &'static str) -> Self {
        let mut details: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        keys.for_each(|(name, detail)| details.entry(name).or_default().extend(detail));
        let mut short = BTreeMap::new();
        for long in details.keys() {
            *short.entry(name(long)).or_default() += 1;
        }
        Self {
            details,
            short,
            unknown,
        }
    }

    fn label(&self, (long, detail): Key) -> GridLabel {
        let short = name(long);
        let is_told = self.details[long].len() > 1;
        GridLabel {
            name: if self.short[short] > 1 { long } else { short }.to_owned(),
            detail: is_told.then(|| detail.unwrap_or(self.unknown).to_owned()),
        }
    }
}

/// Returns the first headings, followed by one for the number of all others.
fn first(labels: OrderedSet<GridLabel>, most: usize, what: &str) -> Vec<GridLabel> {
    let others = labels.len().saturating_sub(most);
    let mut first: Vec<_> = labels.into_iter().take(most).collect();
    if others > 0 {
        first.push(GridLabel {
            name: format!("{others} other {what}"),
            detail: None,
        });
    }
    first
}
