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

/// Returns a table for each policy; empty without a pair of episodes. A group of one variant has no
/// row of its own.
pub fn variations(report: &Report) -> String {
    if report.variations.iter().all(|entry| entry.pairs == 0) {
        return String::new();
    }
    let policies = report.varied_policies();
    let table = |policy: &(&str, Option<&str>)| {
        let rows: Vec<_> = shown(report, *policy).map(row).collect();
        let heading = match policies.len() {
            1 => String::new(),
            _ => format!("{}\n", printable_line(&named(*policy))),
        };
        heading + &Table::first(COLUMNS, rows, "row", ", see report.json").grid()
    };
    policies.iter().map(table).collect()
}

/// Returns the entries of a policy by variant, then those by group.
fn shown<'a>(
    report: &'a Report,
    policy: (&'a str, Option<&'a str>),
) -> impl Iterator<Item = &'a VariationReport> {
    let is_shown = move |entry: &&VariationReport| {
        entry.policy() == policy
            && match entry.by {
                VariationScope::Job => false,
                VariationScope::Variant => true,
                VariationScope::Group => entry.variants > 1,
            }
    };
    report.variations.iter().filter(is_shown)
}

/// Returns the type of a policy, followed by its path if that is known.
fn named((policy_type, path): (&str, Option<&str>)) -> String {
    path.map_or_else(
        || policy_type.to_owned(),
        |path| format!("{policy_type} {path}"),
    )
}

fn row(entry: &VariationReport) -> [String; 8] {
    let none = || "-".to_owned();
    let (group, variant) = match entry.by {
        VariationScope::Group => (
            entry.name.clone(),
            format!("all {}", counted(entry.variants, "variant")),
        ),
        // The values of a combination are in its name.
        _ if entry.groups.len() > 1 => (String::new(), entry.name.clone()),
        _ => (entry.groups.concat(), entry.name.clone()),
    };
    [
        group,
        variant,
        entry.pairs.to_string(),
        entry.control_rate.map_or_else(none, tenths),
        entry.variant_rate.map_or_else(none, tenths),
        entry.difference.map_or_else(none, points),
        entry.interval95.map_or_else(none, points_interval),
        entry.p.map_or_else(none, p_value),
    ]
}
