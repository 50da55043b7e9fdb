//! Draws what variations changed: a bar from the rate of the control to that of the variant, with
//! the interval of the difference.
//!
//! ```text
//! light   dark   ·──┤▓▓▓▓▓▓▓▓├──│··········   −35.0   95.0 → 60.0 %   −55.1 to −12.0
//! ```

use jobs::format;
use maud::{Markup, html};

use crate::page::bars::{place, ruler};
use crate::page::cut;
use crate::page::link::clip;
use crate::{Report, VariationReport, VariationScope};

/// Maximum number of rows shown for a policy.
const MOST_ROWS: usize = 200;

/// Returns the section; `None` if no variant has a pair of episodes.
pub(super) fn section(report: &Report) -> Option<Markup> {
    report
        .variations
        .iter()
        .any(|entry| entry.pairs > 0)
        .then(|| {
            let policies = report.varied_policies();
            html! {
                p.lead {
                    "Each variant beside its control, on the same seeds: the difference of the \
                     rates in percentage points, with its 95" (format::THIN) "% interval. A group \
                     counts each control episode once. Every pair is in "
                    a href="./variations.jsonl" { "variations.jsonl" } "."
                }
                @for policy in &policies {
                    @if policies.len() > 1 { h3 { (policy.0) @if let Some(path) = policy.1 { " " small { (clip(path, 60)) } } } }
                    (bars(report, *policy))
                    (by_job(report, *policy))
                }
            }
        })
}

/// The rows below one heading.
struct Block<'a> {
    group: &'a str,
    rows: Vec<&'a VariationReport>,
}

/// Returns the variants by group, each followed by all of the group. Variants in no group or in
/// several come first.
fn blocks<'a>(entries: &[&'a VariationReport]) -> Vec<Block<'a>> {
    let of = |by: VariationScope| entries.iter().copied().filter(move |entry| entry.by == by);
    let own = |entry: &&VariationReport| entry.groups.len() == 1;
    let mut blocks = vec![Block {
        group: "",
        rows: of(VariationScope::Variant)
            .filter(|entry| !own(entry))
            .collect(),
    }];
    for group in of(VariationScope::Group) {
        let is_in = |entry: &&VariationReport| own(entry) && entry.groups == group.groups;
        let variants = of(VariationScope::Variant).filter(is_in);
        let all = (group.variants > 1).then_some(group);
        blocks.push(Block {
            group: &group.name,
            rows: variants.chain(all).collect(),
        });
    }
    blocks.retain(|block| !block.rows.is_empty());
    blocks
}

fn bars(report: &Report, policy: (&str, Option<&str>)) -> Markup {
    let entries: Vec<_> = report
        .variations
        .iter()
        .filter(|entry| entry.policy() == policy)
        .collect();
    let mut blocks = blocks(&entries);
    let count = |blocks: &[Block]| blocks.iter().map(|block| block.rows.len()).sum::<usize>();
    let all = count(&blocks);
    let mut room = MOST_ROWS;
    for block in &mut blocks {
        block.rows.truncate(room);
        room -= block.rows.len();
    }
    blocks.retain(|block| !block.rows.is_empty());
    html! {
        div.bars {
            div.group.axis aria-hidden="true" { span {} div { div.row { span {} (axis()) span {} } } }
            @for block in &blocks {
                div.group {
                    div.task { (clip(block.group, 80)) }
                    div { @for entry in &block.rows { (row(entry)) } }
                }
            }
        }
        (cut(count(&blocks), all, "rows", "report.json has them all."))
    }
}

fn row(entry: &VariationReport) -> Markup {
    let is_group = entry.by == VariationScope::Group;
    html! {
        div.row {
            span.policy {
                @if is_group { "all " (format::counted(entry.variants, "variant", "variants")) }
                @else { (clip(&entry.name, 80)) }
            }
            svg.bar width="100%" height="22" aria-hidden="true" {
                (ruler(22.0))
                @if let (Some(difference), Some(interval)) = (entry.difference, entry.interval95) {
                    (bar(difference, interval, if is_group { "solved" } else { "all" }))
                }
            }
            (figures(entry))
        }
    }
}

/// Draws a difference from −1 to 1 as a bar that begins in the middle.
fn bar(difference: f64, interval: [f64; 2], kind: &str) -> Markup {
    let at = |value: f64| 50.0 + value * 50.0;
    let [low, high] = interval.map(|end| place(at(end)));
    let end = |at: &str| html! { line.end x1=(at) x2=(at) y1="7" y2="15" {} };
    html! {
        rect class=(kind) x=(place(at(difference.min(0.0)))) width=(place(difference.abs() * 50.0)) y="5" height="12" {}
        line.interval x1=(low) x2=(high) y1="11" y2="11" {}
        (end(&low))
        (end(&high))
    }
}

fn figures(entry: &VariationReport) -> Markup {
    let rates = entry.control_rate.zip(entry.variant_rate);
    let found = entry.difference.zip(entry.interval95).zip(rates);
    html! {
        span.figures {
            @match found {
                Some(((difference, [low, high]), (control, variant))) => {
                    span.numbers {
                        b { (points(difference)) }
                        span.of { (format::percent(control)) " → " (format::percent(variant)) }
                        span.ci { (points(low)) " to " (points(high)) }
                    }
                }
                None => { span.numbers { "no pair" } }
            }
            small {
                (format::counted(entry.pairs, "pair", "pairs"))
                @if let Some(p) = entry.p { ", p = " (format::p_value(p)) }
            }
        }
    }
}

/// Formats a difference of shares in percentage points, as `−35.0`.
fn points(difference: f64) -> String {
    format::points(difference).replace('-', "−")
}

/// Labels the quarters.
fn axis() -> Markup {
    html! {
        svg.bar width="100%" height="16" aria-hidden="true" {
            text x="0%" y="12" { "−100" }
            text.middle x="25%" y="12" { "−50" }
            text.middle x="50%" y="12" { "0" }
            text.middle x="75%" y="12" { "+50" }
            text.right x="100%" y="12" { "+100" }
        }
    }
}

/// Lists the variants of each job, if several jobs have variants.
fn by_job(report: &Report, policy: (&str, Option<&str>)) -> Markup {
    let of = |by: VariationScope| {
        report
            .variations
            .iter()
            .filter(move |entry| entry.by == by && entry.policy() == policy)
    };
    if of(VariationScope::Variant).all(|entry| entry.jobs == 1) {
        return html! {};
    }
    let rows: Vec<_> = of(VariationScope::Job).collect();
    html! {
        h3 { "By job" }
        div.scroll role="region" aria-label="Variants by job" tabindex="0" {
            table {
                thead { tr {
                    th scope="col" { "Job" } th scope="col" { "Variant" }
                    @for name in ["Pairs", "Control", "Varied", "Difference", "95 % interval", "p"] {
                        th.n scope="col" { (name) }
                    }
                } }
                tbody { @for entry in rows.iter().take(MOST_ROWS) { (job_row(entry)) } }
            }
        }
        (cut(rows.len().min(MOST_ROWS), rows.len(), "variants", "report.json has them all."))
    }
}

fn job_row(entry: &VariationReport) -> Markup {
    let text = |text: &Option<String>| clip(text.as_deref().unwrap_or_default(), 80);
    let percent = |rate: Option<f64>| rate.map_or_else(String::new, format::percent);
    html! {
        tr {
            th scope="row" { (text(&entry.control)) }
            td { (text(&entry.variant)) }
            td.n { (format::count(entry.pairs)) }
            td.n { (percent(entry.control_rate)) }
            td.n { (percent(entry.variant_rate)) }
            td.n { (entry.difference.map_or_else(String::new, points)) }
            td.n { @if let Some([low, high]) = entry.interval95 { (points(low)) " to " (points(high)) } }
            td.n { (entry.p.map_or_else(String::new, format::p_value)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_goes_from_the_middle_to_the_difference() {
        let bars = [
            bar(-0.35, [-0.551, -0.12], "all"),
            bar(0.5, [0.1, 1.0], "solved"),
        ];
        let text = bars.map(|bar| bar.into_string()).concat();
        for part in [
            r#"<rect class="all" x="32.50%" width="17.50%""#,
            r#"<line class="interval" x1="22.45%" x2="44.00%""#,
            r#"<rect class="solved" x="50.00%" width="25.00%""#,
            r#"x2="100.00%""#,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_difference_has_a_real_minus() {
        assert_eq!(points(-0.351), "−35.1");
        assert_eq!(points(0.5), "+50.0");
    }
}
