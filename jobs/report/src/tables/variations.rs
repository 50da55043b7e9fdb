//! Shows what variations changed: each variant beside its control, then the groups of variants.

use jobs::count::counted;
use jobs::format::{p_value, points, points_interval, tenths};
use jobs::printable::printable_line;
use jobs::table::Table;

use crate::{Report, VariationReport, VariationScope};

const COLUMNS: [&str; 8] = [
    "Group",
    "Variant",
    "Pairs",
    "Control",
    "Varied",
    "Difference",
    "95 % Interval",
    "p",
];

/// The group or job, the variant or variants, and what is known of them.
pub(crate) type VariationRow<'a> = (&'a str, String, &'a VariationReport);

/// Type and path of a policy.
type Policy<'a> = (&'a str, Option<&'a str>);

/// Returns a table for each policy; empty without a pair of episodes.
pub fn variations(report: &Report) -> String {
    if report.variations.iter().all(|entry| entry.pairs == 0) {
        return String::new();
    }
    let policies = report.varied_policies();
    let table = |policy: &Policy| {
        let heading = match (policies.len(), policy) {
            (1, _) => String::new(),
            (_, (name, None)) => format!("{}\n", printable_line(name)),
            (_, (name, Some(path))) => format!("{}\n", printable_line(&format!("{name} {path}"))),
        };
        let rows = by_group(report, *policy).into_iter().map(row);
        heading + &Table::first(COLUMNS, rows, "row", ", see report.json").grid()
    };
    policies.iter().map(table).collect()
}

/// Returns the variants of a policy by group, each group followed by all of it if it has several.
/// Variants in no group or in several come first: the values of a combination are in its name.
pub(crate) fn by_group<'a>(report: &'a Report, policy: Policy<'a>) -> Vec<VariationRow<'a>> {
    let is_own = |entry: &&VariationReport| entry.groups.len() == 1;
    let variants = of(report, policy, VariationScope::Variant);
    let (own, others): (Vec<_>, Vec<_>) = variants.partition(is_own);
    let name = |entry: &VariationReport| entry.name.clone();
    let others = others.into_iter();
    let mut rows: Vec<_> = others.map(|entry| ("", name(entry), entry)).collect();
    for group in of(report, policy, VariationScope::Group) {
        let variants = own.iter().filter(|entry| entry.groups == group.groups);
        rows.extend(variants.map(|entry| (group.name.as_str(), name(entry), *entry)));
        if group.variants > 1 {
            let all = format!("all {}", counted(group.variants, "variant"));
            rows.push((&group.name, all, group));
        }
    }
    rows
}

/// Returns the variants of each job of a policy; none if every variant has a single job.
pub(crate) fn by_job<'a>(report: &'a Report, policy: Policy<'a>) -> Vec<VariationRow<'a>> {
    if of(report, policy, VariationScope::Variant).all(|entry| entry.jobs == 1) {
        return Vec::new();
    }
    let entries = of(report, policy, VariationScope::Job);
    let variant = |entry: &VariationReport| entry.variant.clone().unwrap_or_default();
    let row = |entry: &'a VariationReport| {
        let control = entry.control.as_deref().unwrap_or_default();
        (control, variant(entry), entry)
    };
    entries.map(row).collect()
}

fn of<'a>(
    report: &'a Report,
    policy: Policy<'a>,
    by: VariationScope,
) -> impl Iterator<Item = &'a VariationReport> {
    let entries = report.variations.iter();
    entries.filter(move |entry| entry.policy() == policy && entry.by == by)
}

fn row((group, variant, entry): VariationRow) -> [String; 8] {
    let none = || "-".to_owned();
    [
        group.to_owned(),
        variant,
        entry.pairs.to_string(),
        entry.control_rate.map_or_else(none, tenths),
        entry.variant_rate.map_or_else(none, tenths),
        entry.difference.map_or_else(none, points),
        entry.interval95.map_or_else(none, points_interval),
        entry.p.map_or_else(none, p_value),
    ]
}
