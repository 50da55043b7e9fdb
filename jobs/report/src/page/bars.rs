//! Draws success rates as bars with their intervals: one row for each task and policy.
//!
//! ```text
//! reach   gr00t    ██████████████├──┤───  64.6 %  93 of 144   56.5 to 71.9 %
//! ```
//! Positions are percentages of the width, so that a bar is right at any width without scaling.

use jobs::format;
use maud::{Markup, html};

use crate::page::grid::{CellTally, TaskGrid};
use crate::page::matrix;

/// The end of a bar and its interval, in percent of the width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bar {
    /// Success rate; the bar goes from 0 to this.
    pub(super) rate: f64,
    /// Lower end of the interval.
    pub(super) low: f64,
    /// Upper end of the interval.
    pub(super) high: f64,
}

impl Bar {
    pub(crate) fn new(rate: Option<f64>, wilson: Option<[f64; 2]>) -> Option<Self> {
        let (rate, [low, high]) = rate.zip(wilson)?;
        Some(Self {
            rate: rate * 100.0,
            low: low * 100.0,
            high: high * 100.0,
        })
    }

    /// Draws the bar between `top` and `top + height` pixels, with the interval on it.
    pub(crate) fn draw(&self, kind: &str, top: f64, height: f64) -> Markup {
        let (middle, [low, high]) = (top + height / 2.0, [self.low, self.high].map(place));
        let end =
            |at: &str| html! { line.end x1=(at) x2=(at) y1=(middle - 4.0) y2=(middle + 4.0) {} };
        html! {
            rect class=(kind) x="0" y=(top) width=(place(self.rate)) height=(height) {}
            line.interval x1=(low) x2=(high) y1=(middle) y2=(middle) {}
            (end(&low))
            (end(&high))
        }
    }
}

/// Formats a position for SVG.
pub(super) fn place(percent: f64) -> String {
    format!("{:.2}%", percent.clamp(0.0, 100.0))
}

pub(super) fn section(grid: &TaskGrid) -> Markup {
    let cells = |row| {
        (0..grid.policies.len()).filter_map(move |column| Some((column, grid.cell(row, column)?)))
    };
    let has_errors = (0..grid.tasks.len())
        .flat_map(cells)
        .any(|(_, tally)| tally.completion_only().is_some());
    html! {
        p.lead {
            "Bars are rates, lines are 95" (format::THIN) "% Wilson intervals."
            @if has_errors {
                " Where episodes broke there are two: " span.key.all { "of all episodes" }
                ", broken ones as not solved, and " span.key.only { "of those that ran to their end" } "."
            }
        }
        div.bars {
            div.group.axis aria-hidden="true" { span {} div { div.row { span {} (axis()) span {} } } }
            @for (row, task) in grid.tasks.iter().enumerate() {
                div.group {
                    div.task { (matrix::task(task)) }
                    div { @for (column, tally) in cells(row) {
                        div.row {
                            span.policy { (matrix::policy(&grid.policies[column])) }
                            (bar(&tally))
                            (numbers(&tally))
                        }
                    } }
                }
            }
        }
    }
}

fn bar(tally: &CellTally) -> Markup {
    let all = Bar::new(tally.rate(), tally.wilson());
    let only = Bar::new(tally.completion_only(), tally.completion_wilson());
    html! {
        svg.bar width="100%" height="22" aria-hidden="true" {
            (ruler(22.0))
            @match (all, only) {
                (Some(all), Some(only)) => { (all.draw("all", 1.0, 9.0)) (only.draw("only", 12.0, 9.0)) }
                (Some(all), None) => { (all.draw("all", 5.0, 12.0)) }
                (None, _) => {}
            }
        }
    }
}

fn numbers(tally: &CellTally) -> Markup {
    let line = |rate: f64, of: u64, wilson: [f64; 2]| {
        html! {
            span.numbers {
                b { (format::percent(rate)) }
                span.of { (format::count(tally.successes)) " of " (format::count(of)) }
                span.ci { (format::interval(wilson)) }
            }
        }
    };
    html! {
        span.figures {
            @match tally.rate().zip(tally.wilson()) {
                Some((rate, wilson)) => { (line(rate, tally.episodes, wilson)) }
                None => { span.numbers { "no episode" } }
            }
            @if let Some((rate, wilson)) = tally.completion_only().zip(tally.completion_wilson()) {
                (line(rate, tally.scored, wilson))
            }
        }
    }
}

/// Draws lines at the quarters.
pub(crate) fn ruler(height: f64) -> Markup {
    html! { @for at in ["0%", "25%", "50%", "75%", "100%"] { line.ruler x1=(at) x2=(at) y1="0" y2=(height) {} } }
}

/// Labels the quarters.
pub(super) fn axis() -> Markup {
    html! {
        svg.bar width="100%" height="16" aria-hidden="true" {
            text x="0%" y="12" { "0" }
            text.middle x="25%" y="12" { "25" }
            text.middle x="50%" y="12" { "50" }
            text.middle x="75%" y="12" { "75" }
            text.right x="100%" y="12" { "100" (format::THIN) "%" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(successes: u64, scored: u64, errors: u64) -> CellTally {
        CellTally {
            expected: None,
            episodes: scored + errors,
            scored,
            successes,
            errors,
            jobs: 1,
        }
    }

    #[test]
    fn a_bar_stands_where_its_numbers_are() {
        // The Wilson interval for 81 of 263 is 25.529 to 36.621 % (statsmodels 0.14).
        let text = bar(&tally(81, 263, 0)).into_string();
        for part in [
            r#"<rect class="all" x="0" y="5" width="30.80%" height="12">"#,
            r#"<line class="interval" x1="25.53%" x2="36.62%" y1="11" y2="11">"#,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.matches("class=\"end\"").count(), 2);
    }

    #[test]
    fn an_interval_never_leaves_the_axis() {
        for (solved, part) in [
            (0, r#"x1="0.00%" x2="27.75%""#),
            (10, r#"x1="72.25%" x2="100.00%""#),
        ] {
            let text = bar(&tally(solved, 10, 0)).into_string();
            assert!(text.contains(part), "{text}");
            let width = format!(r#"width="{}.00%""#, solved * 10);
            assert!(text.contains(&width), "{text}");
        }
    }

    #[test]
    fn errors_make_two_bars() {
        let text = bar(&tally(6, 8, 2)).into_string();
        let numbers = numbers(&tally(6, 8, 2)).into_string();
        let text = text + &numbers.replace(format::THIN, " ");
        for part in [
            r#"class="all" x="0" y="1" width="60.00%""#,
            r#"class="only" x="0" y="12" width="75.00%""#,
            "60.0 %",
            "6 of 10",
            "6 of 8",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn nothing_run_is_no_bar_and_all_broken_has_no_other_rate() {
        assert!(!bar(&tally(0, 0, 0)).into_string().contains("<rect"));
        let text = numbers(&tally(0, 0, 0)).into_string();
        assert!(text.contains("no episode"), "{text}");
        assert!(!bar(&tally(0, 0, 3)).into_string().contains("only"));
    }
}
