//! Shows the main result: the success rate, its certainty, how complete it is, and why it is
//! partial.

use jobs::format;
use maud::{Markup, html};

use crate::notes::notes;
use crate::page::chart::{RATES, axis, place, rate_bar};
use crate::page::clock::Zone;
use crate::page::origin;
use crate::page::parts::{MOST_NAME, clip};
use crate::stats::Solved;
use crate::{Rates, Report};

/// Maximum number of policies whose rates are shown separately.
const MOST_POLICIES: usize = 8;

pub(super) fn section(report: &Report, title: &str, zone: &Zone) -> Markup {
    let badge = match (report.partial, report.complete()) {
        (true, _) => html! { span.badge.bad { "Partial" } },
        (_, true) => html! { span.badge.good { "Complete" } },
        (_, false) => html! { span.badge.bad { "With errors" } },
    };
    html! {
        (top(report, ["rrun evaluation", title], badge, zone))
        (results(report, "Missing"))
        (reasons(report))
    }
}

/// Shows what this is, and when and where it ran.
pub(super) fn top(report: &Report, names: [&str; 2], badges: Markup, zone: &Zone) -> Markup {
    html! {
        p.over { (names[0]) }
        div.title { h1 { (names[1]) } (badges) }
        p.when { (origin::when(report, zone)) }
    }
}

/// Shows rates and coverage; `missing` is the word for episodes that were not found.
pub(super) fn results(report: &Report, missing: &str) -> Markup {
    html! { div.headline { (rate(report)) (coverage(report, missing)) } }
}

/// Shows the rate of each policy, if there are several, then the rate of all together. Variants are
/// not part of it: their rate is up to whoever chose them.
fn rate(report: &Report) -> Markup {
    let policies: Vec<_> = report.tried().collect();
    let more = policies.len().saturating_sub(MOST_POLICIES) as u64;
    let (all, controls) = (&report.overall, &report.controls);
    let varied = all.episodes.saturating_sub(controls.episodes);
    html! {
        div.rate {
            @if policies.len() > 1 {
                @for policy in policies.iter().take(MOST_POLICIES) {
                    @let name = format!(" by {}", clip(&report.policy_name(policy), MOST_NAME));
                    @let jobs = [policy.rated_jobs, policy.jobs];
                    div.each { (one(&policy.rates, &name, policy.mean_task_success_rate, jobs)) }
                }
                @if more > 0 { p.cut { "and " (format::counted(more, "more policy", "more policies")) ", see below" } }
                p.together {
                    "All " (format::count(policies.len() as u64)) " policies together: " (told(Solved::from(controls)))
                    ". This is not the rate of any of them: it depends on how many episodes each has."
                }
            } @else {
                (one(controls, "", report.mean_task_success_rate, rated(report)))
            }
            @if report.has_variants() && varied > 0 {
                p {
                    "Without " (format::counted(varied, "episode of a variant", "episodes of variants"))
                    ", see " a href="#variations-part" { "what variations changed" }
                }
            }
        }
    }
}

/// Shows a rate in one line: `45.5 %, 10 of 22, 26.9 to 65.3 %`.
fn told(solved: Solved) -> Markup {
    html! {
        b { (solved.rate().map(format::percent).unwrap_or_default()) } ", "
        (format::count(solved.successes)) " of " (format::count(solved.episodes))
        ", " (solved.wilson95().map(format::interval).unwrap_or_default())
    }
}

/// Shows the rate of one policy; `by` names it if there are several. `rated` and `jobs` are the
/// number of jobs in the mean and of all.
fn one(rates: &Rates, by: &str, mean: Option<f64>, [rated, jobs]: [u64; 2]) -> Markup {
    let all = Solved::from(rates);
    let at_end = rates.success_at_end.zip(rates.completion_only_rate);
    let at_end = at_end.filter(|(at_end, once)| (at_end - once).abs() > 1e-9);
    html! {
        @match (all.rate(), all.wilson95()) {
            (Some(rate), Some(wilson)) => {
                p.big { b { (format::percent(rate)) } " solved" (by) }
                p {
                    (format::count(all.successes)) " of " (format::counted(all.episodes, "episode", "episodes"))
                    ", 95" (format::THIN) "% interval " b { (format::interval(wilson)) } " (Wilson)"
                }
                div.strip { (rate_bar(all, "all", "100%")) (axis(RATES)) }
            }
            _ => { p.big { "No episode has ended yet" } }
        }
        @if let Some(only) = rates.without_errors() {
            p {
                @match rates.errors {
                    1 => { "Without the episode that broke: " }
                    errors => { "Without the " (format::count(errors)) " episodes that broke: " }
                }
                (told(only))
            }
        }
        @if let Some(mean) = mean.filter(|_| rated > 1) {
            p {
                "Mean over " @if rated < jobs { (format::count(rated)) " of " }
                (format::counted(jobs, "job", "jobs")) ": " b { (format::percent(mean)) }
            }
        }
        @if let Some((at_end, _)) = at_end {
            p { "Still solved after the last step: " b { (format::percent(at_end)) } }
        }
    }
}

/// Returns how many of the jobs under control have a rate, and how many there are.
fn rated(report: &Report) -> [u64; 2] {
    let jobs = || report.jobs_under_control();
    let rated = jobs().filter(|job| job.rates.success_rate.is_some());
    [rated.count(), jobs().count()].map(|count| count as u64)
}

/// Shows how many episodes were found; `missing` is the word for those that were not.
fn coverage(report: &Report, missing: &str) -> Markup {
    let all = &report.overall;
    let twice = report.duplicates_count;
    let total = all.expected.unwrap_or_default().max(all.episodes).max(1);
    let parts = [
        ("solved", "Solved", all.successes),
        ("unsolved", "Not solved", all.scored - all.successes),
        ("error", "Broke", all.errors),
        ("missing", missing, all.missing()),
    ];
    let mut at = 0.0;
    let mut next = |value: u64| {
        let (from, width) = (at, value as f64 / total as f64 * 100.0);
        at += width;
        (place(from), place(width))
    };
    html! {
        div.coverage {
            p.expected {
                b { (format::count(all.episodes)) } " of "
                b { (all.expected.map_or_else(|| "?".to_owned(), format::count)) }
                " expected episodes found"
                @if twice > 0 { ", " (format::count(twice)) " of them twice (the first counts)" }
            }
            svg.parts width="100%" height="14" aria-hidden="true" {
                @for (kind, _, value) in parts {
                    @let (from, width) = next(value);
                    @if value > 0 { rect class=(kind) x=(from) width=(width) y="0" height="14" {} }
                }
            }
            dl.counts {
                @for (kind, name, value) in parts {
                    div { dt { span class={ "dot " (kind) } {} (name) } dd { (format::count(value)) } }
                }
                div { dt { "Ran twice" } dd { (format::count(twice)) } }
                div { dt { "Jobs" } dd { (format::count(report.per_job.len() as u64)) } }
            }
        }
    }
}

/// Lists why the report is partial, or has less than expected.
fn reasons(report: &Report) -> Markup {
    let notes = notes(report);
    let sentence = |note: &str| {
        let (first, rest) = note.split_at(note.chars().next().map_or(0, char::len_utf8));
        format!("{}{rest}.", first.to_uppercase())
    };
    html! { @if !notes.is_empty() { ul.incomplete { @for note in &notes { li { (sentence(note)) } } } } }
}
