//! Shows what was in effect: settings as the ranks reported them, policies with their hashes,
//! versions and devices.

use std::collections::BTreeMap;

use jobs::format;
use maud::{Markup, html};
use serde_json::Value;

use crate::page::parts::{Column, MOST_ROWS, clip, cut, first, table};
use crate::{GpuReport, PolicyReport, Report};

/// Maximum number of values shown of a setting.
const MOST_VALUES: usize = 12;

pub(super) fn section(report: &Report) -> Markup {
    let settings = settings(report);
    let (same, different): (Vec<_>, Vec<_>) =
        settings.iter().partition(|(_, values)| values.len() == 1);
    html! {
        @if !settings.is_empty() {
            div.two {
                div {
                    h3 { "The same in all jobs" }
                    @if same.is_empty() { p.lead { "Nothing." } }
                    dl.facts {
                        @for (key, values) in same.iter().take(MOST_ROWS) {
                            dt { code { (key) } }
                            dd { @for value in values.keys() { (clip(value, 200)) } }
                        }
                    }
                }
                div {
                    h3 { "Different between jobs" }
                    @if different.is_empty() { p.lead { "Nothing." } }
                    dl.facts {
                        @for (key, values) in different.iter().take(MOST_ROWS) {
                            dt { code { (key) } }
                            dd { (several(values)) }
                        }
                    }
                    (cut(different.len().saturating_sub(MOST_ROWS)))
                }
            }
        } @else {
            p.lead { "No rank has reported its settings." }
        }
        (policies(report))
        (machines(report))
    }
}

/// Counts jobs by setting and value. A job without a setting that other jobs have counts as `–`.
fn settings(report: &Report) -> BTreeMap<&str, BTreeMap<String, u64>> {
    let said: Vec<_> = report
        .per_job
        .iter()
        .map(|job| &job.settings)
        .filter(|settings| !settings.is_empty())
        .collect();
    let mut settings: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    for (key, value) in said.iter().flat_map(|settings| settings.iter()) {
        *settings
            .entry(key)
            .or_default()
            .entry(text(value))
            .or_default() += 1;
    }
    for values in settings.values_mut() {
        let silent = said.len() as u64 - values.values().sum::<u64>();
        if silent > 0 {
            values.insert("–".to_owned(), silent);
        }
    }
    settings
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

/// Shows the values, the most frequent first.
fn several(values: &BTreeMap<String, u64>) -> Markup {
    let mut sorted: Vec<_> = values.iter().collect();
    sorted.sort_by_key(|(_, jobs)| std::cmp::Reverse(**jobs));
    first(&sorted, MOST_VALUES, |(value, jobs)| {
        html! { (clip(value, 120)) " " span.muted { (format::counted(**jobs, "job", "jobs")) } }
    })
}

fn policies(report: &Report) -> Markup {
    let policies = &report.config.policies;
    let columns = [
        Column::words("Policy"),
        Column::words("File or folder"),
        Column::numbers("Size"),
        Column::words("Numbers"),
        Column::words("SHA-256"),
    ];
    let row = |policy: &PolicyReport| {
        vec![
            policy.policy_type.as_str().into(),
            html! { code { (policy.path) } }.into(),
            format::bytes(policy.bytes).into(),
            policy.dtypes.join(", ").into(),
            html! { code.hash { (policy.sha256) } }.into(),
        ]
    };
    html! {
        @if !policies.is_empty() {
            h3 { "Policies" }
            (table(["Policies", ""], &columns, policies.iter(), row))
        }
    }
}

fn machines(report: &Report) -> Markup {
    let (versions, gpus, rules) = (
        &report.run.versions,
        gpus(&report.run.gpus),
        &report.config.device_rules,
    );
    html! {
        @if !versions.is_empty() || !gpus.is_empty() || !rules.is_empty() {
            h3 { "Versions and devices" }
            dl.facts {
                @for (name, found) in versions {
                    dt { (name) }
                    dd { (found.join(", ")) @if found.len() > 1 { " " span.bad { "ranks differ" } } }
                }
                @if let Some(git) = &report.run.git { dt { "Commit" } dd { code.hash { (git.commit) } @if git.dirty { " and changes" } } }
                @if !gpus.is_empty() {
                    dt { "GPUs" }
                    dd { @for ((name, bytes), count) in &gpus {
                        span.place { (format::count(*count)) " × " (name) ", " (format::bytes(*bytes)) }
                    } }
                }
                @if !rules.is_empty() {
                    dt { "Devices" }
                    dd { (first(rules, MOST_VALUES, |rule| html! { (clip(rule, 200)) })) }
                }
            }
        }
    }
}

/// Counts the GPUs of each model and size.
fn gpus(gpus: &[GpuReport]) -> BTreeMap<(&str, u64), u64> {
    let mut kinds = BTreeMap::new();
    for gpu in gpus {
        *kinds.entry((gpu.name.as_str(), gpu.bytes)).or_default() += 1;
    }
    kinds
}
