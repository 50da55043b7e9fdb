//! Shows what variations changed: a bar from the rate of the control to that of the variant, with
//! the interval of the difference.
//!
//! ```text
//! light   dark   ·──┤▓▓▓▓▓▓▓▓├──│··········   −35.0   −55.1 to −12.0   95.0 %   60.0 %
//! ```

use jobs::format;
use maud::{Markup, html};

use crate::page::chart::{Bar, DIFFERENCES, axis};
use crate::page::parts::{Cell, Column, MOST_NAME, clip, table};
use crate::{Report, VariationReport, VariationScope};

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
        @for policy in &policies {
            @if policies.len() > 1 { h3 { (policy.0) @if let Some(path) = policy.1 { " " small { (clip(path, 60)) } } } }
            (of_policy(report.variations.iter().filter(|entry| entry.policy() == *policy)))
        }
    }
}

/// Shows the variants and groups of a policy, then those of each job if several jobs have variants.
fn of_policy<'a>(entries: impl Iterator<Item = &'a VariationReport>) -> Markup {
    let (by_job, entries): (Vec<_>, Vec<_>) =
        entries.partition(|entry| entry.by == VariationScope::Job);
    let is_one = |entry: &&VariationReport| entry.by != VariationScope::Variant || entry.jobs == 1;
    let jobs = by_job.iter().map(|entry| {
        let control = entry.control.as_deref().unwrap_or_default();
        (
            control,
            clip(entry.variant.as_deref().unwrap_or_default(), MOST_NAME),
            *entry,
        )
    });
    html! {
        (compared("What variations changed", "Group", &grouped(&entries)))
        @if !entries.iter().all(is_one) {
            h3 { "By job" }
            (compared("Variants by job", "Job", &jobs.collect::<Vec<_>>()))
        }
    }
}

/// What is compared, its first and second name.
type Row<'a> = (&'a str, String, &'a VariationReport);

/// Returns the variants by group, each followed by all of the group. Variants in no group or in
/// several come first.
fn grouped<'a>(entries: &[&'a VariationReport]) -> Vec<Row<'a>> {
    let of = |by: VariationScope| entries.iter().copied().filter(move |entry| entry.by == by);
    let variant = |entry: &'a VariationReport| clip(&entry.name, MOST_NAME);
    let is_own = |entry: &&VariationReport| entry.groups.len() == 1;
    let others = of(VariationScope::Variant).filter(|entry| !is_own(entry));
    let mut rows: Vec<Row> = others.map(|entry| ("", variant(entry), entry)).collect();
    for group in of(VariationScope::Group) {
        let is_in = |entry: &&VariationReport| is_own(entry) && entry.groups == group.groups;
        let variants = of(VariationScope::Variant).filter(is_in);
        let variants = variants.map(|entry| (group.name.as_str(), variant(entry), entry));
        rows.extend(variants);
        if group.variants > 1 {
            let all = format::counted(group.variants, "variant", "variants");
            rows.push((&group.name, format!("all {all}"), group));
        }
    }
    rows
}

fn compared(name: &str, first: &str, rows: &[Row]) -> Markup {
    let columns = [
        Column::words(first),
        Column::words("Variant"),
        Column::words(axis(DIFFERENCES)),
        Column::numbers("Difference"),
        Column::numbers("95\u{202f}% interval"),
        Column::numbers("Control"),
        Column::numbers("Varied"),
        Column::numbers("Pairs"),
        Column::numbers("p"),
    ];
    table([name, "varied"], &columns, rows.iter(), row)
}

fn row((first, second, entry): &Row) -> Vec<Cell> {
    let kind = if entry.by == VariationScope::Group {
        "solved"
    } else {
        "all"
    };
    let percent = |rate: Option<f64>| rate.map(format::percent).unwrap_or_default().into();
    let bar = entry.difference.zip(entry.interval95);
    let bar = bar.map(|(difference, interval)| Bar::difference(difference, interval));
    let interval = |ends: [f64; 2]| ends.map(points).join(" to ");
    vec![
        clip(first, MOST_NAME).into(),
        second.as_str().into(),
        Cell::from(html! { @if let Some(bar) = bar { (bar.draw(kind, "100%")) } }).class("drawn"),
        entry.difference.map(points).unwrap_or_default().into(),
        entry.interval95.map(interval).unwrap_or_default().into(),
        percent(entry.control_rate),
        percent(entry.variant_rate),
        format::count(entry.pairs).into(),
        entry.p.map(format::p_value).unwrap_or_default().into(),
    ]
}

/// Formats a difference of shares in percentage points, as `−35.0`.
fn points(difference: f64) -> String {
    format::points(difference).replace('-', "−")
}
