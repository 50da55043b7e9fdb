//! Shows success by task and policy: a table whose cells have a rate, its bar and its interval.

use jobs::format;
use maud::{Markup, html};

use crate::Report;
use crate::page::chart::{RATES, axis, rate_bar};
use crate::page::grid::{GridCell, GridLabel, TaskGrid};
use crate::page::parts::{Cell, clip, heads, table};
use crate::stats::Solved;

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
    let has_errors = grid
        .cells
        .values()
        .any(|cell| cell.rates.without_errors().is_some());
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
        @if grid.others != [0, 0] {
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

fn cell(cell: Option<&GridCell>) -> Cell {
    let Some(GridCell { rates, jobs }) = cell else {
        return Cell::from(html! { span.sr { "not run" } }).class("none");
    };
    let cell = Cell::from(html! {
        (solved(Solved::from(rates), "all"))
        @if let Some(only) = rates.without_errors() { (solved(only, "only")) }
        @if *jobs > 1 { small { (format::count(*jobs)) " jobs" } }
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
