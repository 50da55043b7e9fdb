//! Draws bars and curves. Positions are percentages of the width, so that a drawing is right at any
//! width without scaling.
//!
//! ```text
//! ██████████████├──┤───       100 ┬  ●───●
//! 0    25    50    75   100 %     ●──┴   ┴
//! ```

use jobs::format;
use maud::{Markup, html};

use crate::stats::Solved;

/// Height of a curve in pixels, from 100 % to 0 %.
const HEIGHT: f64 = 200.0;

/// Least distance of two labels below a curve, in percent of the width.
const LEAST: f64 = 8.0;

/// Labels of rates.
pub(crate) const RATES: [&str; 5] = ["0", "25", "50", "75", "100\u{202f}%"];

/// Labels of differences of rates.
pub(crate) const DIFFERENCES: [&str; 5] = ["−100", "−50", "0", "+50", "+100"];

/// Draws a success rate with its interval; nothing without an episode.
pub(crate) fn rate_bar(solved: Solved, kind: &str, width: &str) -> Markup {
    let Some((rate, interval)) = solved.rate().zip(solved.wilson95()) else {
        return html! {};
    };
    bar(
        [0.0, rate * 100.0],
        interval.map(|end| end * 100.0),
        kind,
        width,
    )
}

/// Draws a difference from −1 to 1 with its interval; it begins in the middle.
pub(crate) fn difference_bar(difference: f64, interval: [f64; 2], kind: &str) -> Markup {
    let at = |value: f64| 50.0 + value * 50.0;
    let ends = [at(difference.min(0.0)), at(difference.max(0.0))];
    bar(ends, interval.map(at), kind, "100%")
}

/// Draws a bar between lines at the quarters, and an interval on it, in percent of the width.
fn bar([from, to]: [f64; 2], interval: [f64; 2], kind: &str, width: &str) -> Markup {
    let [low, high] = interval.map(place);
    html! {
        svg.bar width=(width) height="16" aria-hidden="true" {
            @for at in ["0%", "25%", "50%", "75%", "100%"] { line.ruler x1=(at) x2=(at) y1="0" y2="16" {} }
            rect class=(kind) x=(place(from)) width=(place(to - from)) y="3" height="10" {}
            line.interval x1=(low) x2=(high) y1="8" y2="8" {}
            @for at in [&low, &high] { line.end x1=(at) x2=(at) y1="4" y2="12" {} }
        }
    }
}

/// Formats a position for SVG.
pub(crate) fn place(percent: f64) -> String {
    format!("{:.2}%", percent.clamp(0.0, 100.0))
}

/// Labels the quarters.
pub(crate) fn axis(labels: [&str; 5]) -> Markup {
    let ticks = labels.into_iter().zip([0.0, 25.0, 50.0, 75.0, 100.0]);
    html! { (ruler(ticks.map(|(label, at)| (at, label.to_owned())).collect())) }
}

/// Labels positions; labels at the ends stay within the width.
pub(crate) fn ruler(ticks: Vec<(f64, String)>) -> Markup {
    html! {
        svg.axis width="100%" height="16" aria-hidden="true" {
            @for (at, label) in ticks { text class=(anchor(at)) x=(place(at)) y="11" { (label) } }
        }
    }
}

fn anchor(at: f64) -> &'static str {
    match at {
        ..6.0 => "left",
        94.0.. => "right",
        _ => "middle",
    }
}

/// A point of a curve.
pub(crate) struct Mark {
    /// Where it is: a latency, a training step.
    pub(crate) at: f64,
    pub(crate) solved: Solved,
    /// What it is about.
    pub(crate) name: String,
}

/// Draws success rates, from left to right in the order of the marks; those without an episode are
/// left out.
pub(crate) fn curve(marks: &[Mark], about: &str) -> Markup {
    let rated = marks
        .iter()
        .filter_map(|mark| Some((mark, mark.solved.rate()?)));
    let rated: Vec<_> = rated.collect();
    let (first, last) = match &rated[..] {
        [] => return html! { p.muted { "No episode has ended yet." } },
        [(first, _), .., (last, _)] => (first.at, last.at),
        [(only, _)] => (only.at - 1.0, only.at + 1.0),
    };
    let x = |mark: &Mark| 3.0 + 94.0 * (mark.at - first) / (last - first).max(f64::MIN_POSITIVE);
    let y = |rate: f64| format!("{:.1}", (1.0 - rate) * HEIGHT);
    let mut labelled = f64::NEG_INFINITY;
    let mut is_labelled = |mark: &Mark| {
        let is_far = x(mark) - labelled >= LEAST;
        labelled = if is_far { x(mark) } else { labelled };
        is_far
    };
    html! {
        svg.curve width="100%" height=(HEIGHT + 28.0) role="img" aria-label=(about) {
            @for (rate, label) in [(1.0, "100"), (0.75, "75"), (0.5, "50"), (0.25, "25"), (0.0, "0")] {
                line.ruler x1="0%" x2="100%" y1=(y(rate)) y2=(y(rate)) {}
                text.right x="-0.6em" y=(y(rate)) dy="0.35em" { (label) }
            }
            @for pair in rated.windows(2) {
                @let [(from, low), (to, high)] = [&pair[0], &pair[1]];
                line.path x1=(place(x(from))) x2=(place(x(to))) y1=(y(*low)) y2=(y(*high)) {}
            }
            @for (mark, rate) in &rated {
                @let at = place(x(mark));
                @if let Some([low, high]) = mark.solved.wilson95() {
                    line.interval x1=(at) x2=(at) y1=(y(low)) y2=(y(high)) {}
                }
                circle.all cx=(at) cy=(y(*rate)) r="4.5" {
                    title { (mark.name) ": " (format::percent(*rate)) ", " (mark.solved) }
                }
                @if is_labelled(mark) {
                    text.middle x=(at) y=(HEIGHT + 22.0) { (label(mark.at)) }
                }
            }
        }
        p.muted { (about) }
    }
}

/// Formats a position with at most two decimals.
fn label(at: f64) -> String {
    let at = (at * 100.0).round() / 100.0;
    match at.fract() == 0.0 && at >= 0.0 {
        true => format::count(at as u64),
        false => at.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::elements;

    /// The Wilson interval for 81 of 263 is 25.529 to 36.621 % (statsmodels 0.14). An interval
    /// stays within the axis, a difference begins in the middle, a single mark stands there, and
    /// what has no episode is left out.
    #[test]
    fn drawings_are_where_their_numbers_are() {
        let rates = [(81, 263), (0, 10), (10, 10), (0, 0)];
        let rates = rates.map(|(of, all)| rate_bar(Solved::new(of, all), "all", "100%"));
        let differences = [(-0.35, [-0.551, -0.12]), (0.5, [0.1, 1.0])];
        let differences = differences.map(|(of, interval)| difference_bar(of, interval, "all"));
        let mark = |at, successes, episodes| Mark {
            at,
            solved: Solved::new(successes, episodes),
            name: format!("push_{at}"),
        };
        let three = [mark(0.0, 10, 10), mark(2.0, 0, 0), mark(4.0, 5, 10)];
        let curves: [&[Mark]; 3] = [&three, &[mark(7.0, 1, 2)], &[]];
        let curves = curves.map(|marks| curve(marks, "steps"));
        let drawings = rates.into_iter().chain(differences).chain(curves);
        let drawings = drawings.map(|drawing| elements(&drawing.into_string()));
        insta::assert_snapshot!(drawings.collect::<Vec<_>>().join("\n\n"));
    }
}
