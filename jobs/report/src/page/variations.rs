//! Shows what variations changed: a bar from the rate of the control to that of the variant, with
//! the interval of the difference.
//!
//! ```text
//! light   dark   ·──┤▓▓▓▓▓▓▓▓├──│··········   −35.0   −55.1 to −12.0   95.0 %   60.0 %
//! ```

use jobs::format;
use maud::{Markup, html};

use crate::page::chart::{DIFFERENCES, axis, difference_bar};
use crate::page::parts::{Cell, MOST_NAME, clip, count, heads, number, table};
use crate::tables::{VariationRow, by_group, by_job};
use crate::{Report, VariationScope};

pub(super) const NAMES: [&str; 3] = ["variations", "Variations", "What variations changed"];

/// Returns the section, which is empty if no variant has a pair of episodes.
pub(super) fn section(report: &Report) -> Markup {
    if report.variations.iter().all(|entry| entry.pairs == 0) {
        return html! {};
    }
    let policies = report.varied_policies();
    html! {
        p.lead {
            "Each variant beside its control, on the same seeds: the difference of the \
             rates in percentage points, with its 95" (format::THIN) "% interval. A group \
             counts each control episode once. Every pair is in "
            a href="./variations.jsonl" { "variations.jsonl" } "."
        }
        @for policy in policies.iter().copied() {
            @if policies.len() > 1 { h3 { (policy.0) @if let Some(path) = policy.1 { " " small { (clip(path, 60)) } } } }
            (compared("What variations changed", "Group", &by_group(report, policy)))
            @let jobs = by_job(report, policy);
            @if !jobs.is_empty() { h3 { "By job" } (compared("Variants by job", "Job", &jobs)) }
        }
    }
}

fn compared(name: &str, first: &'static str, rows: &[VariationRow]) -> Markup {
    let mut heads = heads([
        first,
        "Variant",
        "",
        "Difference",
        "95\u{202f}% interval",
        "Control",
        "Varied",
        "Pairs",
        "p",
    ]);
    heads[2] = axis(DIFFERENCES).into();
    table([name, "varied"], &heads, rows.iter(), row)
}

fn row((first, second, entry): &VariationRow) -> Vec<Cell> {
    let kind = match entry.by {
        VariationScope::Group => "solved",
        _ => "all",
    };
    let bar = entry.difference.zip(entry.interval95);
    let bar = bar.map(|(difference, interval)| difference_bar(difference, interval, kind));
    let low = entry.interval95.map(|[low, _]| low);
    let interval = entry.interval95.map(format::points_interval);
    let interval = interval.unwrap_or_default().replace('-', "−");
    vec![
        clip(first, MOST_NAME).into(),
        clip(second, MOST_NAME).into(),
        Cell::from(bar.unwrap_or_default()).class("drawn"),
        number(entry.difference, |points| {
            format::points(points).replace('-', "−")
        }),
        number(low, |_| interval.clone()),
        number(entry.control_rate, format::percent),
        number(entry.variant_rate, format::percent),
        count(entry.pairs),
        number(entry.p, format::p_value),
    ]
}
