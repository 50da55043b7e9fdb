//! Shows the success matrix: a table whose cells are darker for higher rates.

use maud::{Markup, html};

use crate::page::grid::{CellTally, GridLabel, TaskGrid};
use crate::page::link::clip;
use jobs::format;

pub(super) fn section(grid: &TaskGrid, has_variations: bool) -> Markup {
    html! {
        p.lead {
            "Solved episodes of all that were found, an episode that broke counts as not solved. "
            "Small print: solved of found, and the 95" (format::THIN) "% interval (Wilson)."
            @if has_variations { " Without " a href="#variations" { "variations" } "." }
        }
        div.scroll role="region" aria-label="Success matrix" tabindex="0" {
            table.matrix {
                thead { tr {
                    th scope="col" { "Task" }
                    @for policy in &grid.policies { th scope="col" { (self::policy(policy)) } }
                } }
                tbody {
                    @for (row, task) in grid.tasks.iter().enumerate() {
                        tr {
                            th scope="row" { (self::task(task)) }
                            @for column in 0..grid.policies.len() { (cell(grid.cell(row, column))) }
                        }
                    }
                }
            }
        }
        @if grid.other_tasks > 0 || grid.other_policies > 0 {
            p.cut { "The last row and column sum up the rest; report.json has them all." }
        }
    }
}

/// Shows the name of a task, with its instruction if that distinguishes it.
pub(super) fn task(task: &GridLabel) -> Markup {
    html! {
        @match &task.detail {
            Some(instruction) => { (clip(instruction, 120)) small { (task.name) } }
            None => { (task.name) }
        }
    }
}

/// Shows the name of a policy.
pub(super) fn policy(policy: &GridLabel) -> Markup {
    html! { (policy.name) @if let Some(path) = &policy.detail { small { (clip(path, 60)) } } }
}

fn cell(tally: Option<CellTally>) -> Markup {
    let Some(tally) = tally else {
        return html! { td.none { span.sr { "not run" } } };
    };
    let (Some(rate), Some(wilson)) = (tally.rate(), tally.wilson()) else {
        return html! { td.none { "no episode" (rest(&tally)) } };
    };
    html! {
        td class={ "r" (shade(rate)) } {
            b { (format::percent(rate)) }
            small { (format::count(tally.successes)) " of " (format::count(tally.episodes)) }
            small { (format::interval(wilson)) }
            @if tally.jobs > 1 { small { (format::count(tally.jobs)) " jobs" } }
            (rest(&tally))
        }
    }
}

/// Shows errors and missing episodes.
fn rest(tally: &CellTally) -> Markup {
    html! {
        @if tally.errors > 0 { small.bad { (format::counted(tally.errors, "error", "errors")) } }
        @if tally.missing() > 0 { small.bad { (format::count(tally.missing())) " missing" } }
    }
}

/// Returns one of eleven shades, 0 to 10.
fn shade(rate: f64) -> u64 {
    (rate * 10.0).round() as u64
}
