//! Shows success by task and policy: a table whose cells have a rate, its bar and its interval.

use jobs::format;
use maud::{Markup, html};

use crate::Report;
use crate::page::chart::{Bar, RATES, axis};
use crate::page::grid::{GridCell, GridLabel, TaskGrid};
use crate::page::parts::{Cell, clip, heads, table};
use crate::stats::Solved;

pub(super) fn section(report: &Report) -> Markup {
    let grid = TaskGrid::new(report);
    let mut heads = heads(["Task"]);
    let head = |policy| Cell::from(html! { (self::policy(policy)) (axis(RATES)) });
    heads.extend(grid.policies.iter().map(head));
    let row = |(row, task): (usize, &GridLabel)| {
        let mut cells = vec![Cell::from(self::task(task))];
        cells.extend((0..grid.policies.len()).map(|column| cell(grid.cell(row, column))));
        cells
    };
    let tasks = grid.tasks.iter().enumerate();
    let has_errors = grid
        .cells()
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

/// Shows the name of a task, with its instruction if that distinguishes it.
fn task(task: &GridLabel) -> Markup {
    html! {
        @match &task.detail {
            Some(instruction) => { (clip(instruction, 120)) small { (task.name) } }
            None => { (task.name) }
        }
    }
}

/// Shows the name of a policy.
fn policy(policy: &GridLabel) -> Markup {
    html! { (policy.name) @if let Some(path) = &policy.detail { small { (clip(path, 60)) } } }
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
    cell.class(if rates.episodes == 0 { "none" } else { "" })
}

fn solved(solved: Solved, kind: &str) -> Markup {
    let Some(bar) = Bar::rate(solved) else {
        return html! { "no episode" };
    };
    html! {
        div.numbers {
            b { (solved.rate().map(format::percent).unwrap_or_default()) }
            small { (format::count(solved.successes)) " of " (format::count(solved.episodes)) }
            small { (solved.wilson95().map(format::interval).unwrap_or_default()) }
        }
        (bar.draw(kind, "100%"))
    }
}
