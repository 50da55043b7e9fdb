//! Shows what was in effect: settings as the ranks reported them, policies with their hashes,
//! versions and devices.

use std::collections::BTreeMap;

use jobs::{format, tree};
use maud::{Markup, html};
use serde_json::Value;

use crate::page::parts::{MOST_ROWS, clip, cut, fact, first, heads, number, table};
use crate::{GpuReport, PolicyReport, Report};

/// Maximum number of values shown of a setting.
const MOST_VALUES: usize = 12;

pub(super) const NAMES: [&str; 3] = ["settings", "Settings", "Settings in effect"];

pub(super) fn section(report: &Report) -> Markup {
    let settings = settings(report);
    let (same, different): (Vec<_>, Vec<_>) =
        settings.iter().partition(|(_, values)| values.len() == 1);
    let lists = [
        ("The same in all jobs", same),
        ("Different between jobs", different),
    ];
    html! {
        @if settings.is_empty() { p.lead { "No rank has reported its settings." } }
        @else { div.two { @for (name, settings) in &lists {
            div {
                h3 { (name) }
                @if settings.is_empty() { p.lead { "Nothing." } }
                dl.facts { @for (key, values) in settings.iter().take(MOST_ROWS) {
                    dt { code { (key) } }
                    dd { (several(values)) }
                } }
                (cut(settings.len().saturating_sub(MOST_ROWS)))
            }
        } } }
        (policies(report))
        (machines(report))
    }
}

/// Counts jobs by setting and value. A job without a setting that other jobs have counts as `–`.
fn settings(report: &Report) -> BTreeMap<&str, BTreeMap<String, u64>> {
    let told = report.per_job.iter().map(|job| &job.settings);
    let told: Vec<_> = told.filter(|settings| !settings.is_empty()).collect();
    let mut settings: BTreeMap<&str, BTreeMap<String, u64>> = BTreeMap::new();
    for (key, value) in told.iter().copied().flatten() {
        let values = settings.entry(key).or_default();
        *values.entry(text(value)).or_default() += 1;
    }
    for values in settings.values_mut() {
        let silent = told.len() as u64 - values.values().sum::<u64>();
        if silent > 0 {
            values.insert("–".to_owned(), silent);
        }
    }
    settings
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        value => tree::plain(value),
    }
}

/// Shows the values, the most frequent first, and of several how many jobs have each.
fn several(values: &BTreeMap<String, u64>) -> Markup {
    let mut sorted: Vec<_> = values.iter().collect();
    sorted.sort_by_key(|(_, jobs)| std::cmp::Reverse(**jobs));
    first(&sorted, MOST_VALUES, |(value, jobs)| {
        html! {
            (clip(value, 200))
            @if values.len() > 1 { " " span.muted { (format::counted(**jobs, "job", "jobs")) } }
        }
    })
}

fn policies(report: &Report) -> Markup {
    let policies = &report.config.policies;
    let heads = heads(["Policy", "File or folder", "Size", "Numbers", "SHA-256"]);
    let row = |PolicyReport { files, dtypes }: &PolicyReport| {
        vec![
            files.policy_type.as_str().into(),
            html! { code { (files.path) } }.into(),
            number(Some(files.bytes as f64), |_| format::bytes(files.bytes)),
            dtypes.join(", ").into(),
            html! { code.hash { (files.sha256) } }.into(),
        ]
    };
    html! {
        @if !policies.is_empty() {
            h3 { "Policies" }
            (table(["Policies", ""], &heads, policies.iter(), row))
        }
    }
}

fn machines(report: &Report) -> Markup {
    let (versions, rules) = (&report.run.versions, &report.config.device_rules);
    let mut gpus: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for GpuReport { gpu, .. } in &report.run.gpus {
        *gpus.entry((&gpu.name, gpu.bytes)).or_default() += 1;
    }
    let gpu = |((name, bytes), count): &((&str, u64), u64)| {
        html! { (format::count(*count)) " × " (name) ", " (format::bytes(*bytes)) }
    };
    let gpus: Vec<_> = gpus.into_iter().collect();
    html! {
        @if !versions.is_empty() || !gpus.is_empty() || !rules.is_empty() {
            h3 { "Versions and devices" }
            dl.facts {
                @for (name, found) in versions {
                    (fact(name, html! { (found.join(", ")) @if found.len() > 1 { " " span.bad { "ranks differ" } } }))
                }
                @if let Some(git) = &report.run.git {
                    (fact("Commit", html! { code.hash { (git.commit) } @if git.dirty { " and changes" } }))
                }
                @if !gpus.is_empty() { (fact("GPUs", first(&gpus, gpus.len(), gpu))) }
                @if !rules.is_empty() {
                    (fact("Devices", first(rules, MOST_VALUES, |rule| html! { (clip(rule, 200)) })))
                }
            }
        }
    }
}
