//! Shows what was in effect: settings as the ranks reported them, policies with their hashes,
//! versions and devices.

use std::collections::BTreeMap;

use jobs::format;
use maud::{Markup, html};
use serde_json::Value;

use crate::page::cut;
use crate::page::link::clip;
use crate::{GpuReport, Report};

/// Maximum number of values shown of a setting.
const MOST_VALUES: usize = 12;

/// Maximum number of policies shown.
const MOST_POLICIES: usize = 60;

/// Maximum number of settings shown, of those that differ between jobs and of those that do not.
const MOST_SETTINGS: usize = 60;

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
                        @for (key, values) in same.iter().take(MOST_SETTINGS) {
                            dt { code { (key) } }
                            dd { @for value in values.keys() { (clip(value, 200)) } }
                        }
                    }
                }
                div {
                    h3 { "Different between jobs" }
                    @if different.is_empty() { p.lead { "Nothing." } }
                    dl.facts {
                        @for (key, values) in different.iter().take(MOST_SETTINGS) {
                            dt { code { (key) } }
                            dd { (several(values)) }
                        }
                    }
                    (cut(different.len().min(MOST_SETTINGS), different.len(), "settings", "report.json has them all."))
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
    html! {
        @for (value, jobs) in sorted.iter().take(MOST_VALUES) {
            span.place { (clip(value, 120)) " " span.muted { (format::counted(**jobs, "job", "jobs")) } }
        }
        @let more = sorted.len().saturating_sub(MOST_VALUES) as u64;
        @if more > 0 { span.place.muted { "and " (format::counted(more, "other value", "other values")) } }
    }
}

fn policies(report: &Report) -> Markup {
    let policies = &report.config.policies;
    let shown = &policies[..policies.len().min(MOST_POLICIES)];
    html! {
        @if !shown.is_empty() {
            h3 { "Policies" }
            div.scroll role="region" aria-label="Policies" tabindex="0" {
                table {
                    thead { tr {
                        th scope="col" { "Policy" } th scope="col" { "File or folder" } th.n scope="col" { "Size" }
                        th scope="col" { "Numbers" } th scope="col" { "SHA-256" }
                    } }
                    tbody { @for policy in shown {
                        tr {
                            td { (policy.policy_type) }
                            td { code { (policy.path) } }
                            td.n { (format::bytes(policy.bytes)) }
                            td { (policy.dtypes.join(", ")) }
                            td { code.hash { (policy.sha256) } }
                        }
                    } }
                }
            }
            (cut(shown.len(), policies.len(), "policies", "report.json has them all."))
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
                    dd { @for rule in rules.iter().take(MOST_VALUES) { span.place { (clip(rule, 200)) } } }
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
