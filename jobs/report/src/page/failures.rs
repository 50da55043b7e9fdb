//! Shows what failed: errors by reason, and lost simulators.
//!
//! Messages about the same cause often differ in process and episode numbers, so reasons that
//! differ only in numbers are grouped.

use std::collections::BTreeMap;

use jobs::format;
use maud::{Markup, html};

use crate::page::parts::{self, Cell, Column, clip, first, href};
use crate::{EnvLoss, Reason, Report};

/// Maximum number of places and of logs shown for a reason.
const MOST: usize = 4;

/// Maximum number of characters shown of a reason.
const MOST_TEXT: usize = 1200;

/// Errors with the same reason.
#[derive(Debug, PartialEq, Eq)]
struct FailureGroup<'a> {
    /// Message of the first error.
    text: &'a str,
    count: u64,
    /// The first places: job and episode, or `None` if the job itself failed.
    places: Vec<(&'a str, Option<u64>)>,
    /// The first logs with more information.
    logs: Vec<&'a str>,
    /// Last lines of the process of the first error.
    stderr: &'a [String],
}

/// One error, or several of which only the number is known.
struct FailureEntry<'a> {
    text: &'a str,
    count: u64,
    place: Option<(&'a str, Option<u64>)>,
    log: Option<&'a str>,
    stderr: &'a [String],
}

pub(super) fn section(report: &Report) -> Markup {
    let (broken, lost) = (
        grouped(broken(report)),
        grouped(report.env_losses.iter().map(lost)),
    );
    html! {
        @if broken.is_empty() {
            p.lead { "Nothing: no job and no episode ended with an error." }
        } @else {
            p.lead {
                (format::counted(report.failures_count, "error", "errors")) ", by reason. "
                "A crash is not a failure of the policy; the rates are given with and without."
            }
            (table(&broken, "Errors"))
        }
        @if !lost.is_empty() {
            h3 { "Simulators that were lost" }
            p.lead {
                (format::counted(report.env_losses_count, "process", "processes"))
                " died or hung; the episodes were restarted."
            }
            (table(&lost, "Lost simulators"))
        }
    }
}

/// Returns the errors of a report. Places and logs are known for the first errors only, but the
/// number of errors for each reason is known for all.
fn broken(report: &Report) -> impl Iterator<Item = FailureEntry<'_>> {
    let is_counted = !report.failures_by_reason.is_empty();
    let counts = report
        .failures_by_reason
        .iter()
        .map(|Reason { reason, count }| FailureEntry {
            text: reason,
            count: *count,
            place: None,
            log: None,
            stderr: &[],
        });
    let places = report.failures.iter().map(move |failure| FailureEntry {
        text: &failure.reason,
        count: u64::from(!is_counted),
        place: Some((&failure.job, failure.episode)),
        log: failure.log.as_deref(),
        stderr: &[],
    });
    counts.chain(places)
}

fn lost(loss: &EnvLoss) -> FailureEntry<'_> {
    FailureEntry {
        text: &loss.reason,
        count: 1,
        place: Some((&loss.job, Some(loss.episode))),
        log: None,
        stderr: &loss.stderr,
    }
}

/// Groups errors, the most frequent first; among equally frequent groups, the one that occurred
/// first.
fn grouped<'a>(said: impl Iterator<Item = FailureEntry<'a>>) -> Vec<FailureGroup<'a>> {
    let mut index = BTreeMap::new();
    let mut groups: Vec<FailureGroup> = Vec::new();
    for FailureEntry {
        text,
        count,
        place,
        log,
        stderr,
    } in said
    {
        let at = *index.entry(without_numbers(text)).or_insert(groups.len());
        if at == groups.len() {
            groups.push(FailureGroup {
                text,
                count: 0,
                places: Vec::new(),
                logs: Vec::new(),
                stderr,
            });
        }
        let group = &mut groups[at];
        group.count += count;
        group
            .places
            .extend(place.filter(|_| group.places.len() < MOST));
        group
            .logs
            .extend(log.filter(|log| group.logs.len() < MOST && !group.logs.contains(log)));
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups
}

/// Replaces each run of digits by `0`.
fn without_numbers(text: &str) -> String {
    let mut key = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '0'..='9' if key.ends_with('0') => {}
            '0'..='9' => key.push('0'),
            c => key.push(c),
        }
    }
    key
}

fn table(groups: &[FailureGroup], name: &str) -> Markup {
    let columns = [
        Column::numbers("Times"),
        Column::words("Reason"),
        Column::words("Where"),
        Column::words("Log"),
    ];
    let log = |log: &&str| html! { a href=(href(log)) { (log) } };
    let row = |group: &FailureGroup| {
        vec![
            format::count(group.count).into(),
            Cell::from(reason(group)).class("reason"),
            Cell::from(places(group)).class("where"),
            first(&group.logs, MOST, log).into(),
        ]
    };
    parts::table([name, "reasons"], &columns, groups.iter(), row)
}

/// Shows the first line of a reason, and the rest on demand.
fn reason(group: &FailureGroup) -> Markup {
    let whole = group.text.trim();
    let (first, rest) = whole.split_once('\n').unwrap_or((whole, ""));
    html! {
        (clip(first, 300))
        @if !rest.is_empty() || first.chars().count() > 300 {
            details { summary { "Full text" } pre { (clip(whole, MOST_TEXT)) } }
        }
        @if !group.stderr.is_empty() {
            details { summary { "Last output" } pre { (clip(&group.stderr.join("\n"), MOST_TEXT)) } }
        }
    }
}

fn places(group: &FailureGroup) -> Markup {
    let place = |(job, episode): &(&str, Option<u64>)| {
        html! { (job) @if let Some(episode) = episode { " " span.muted { "episode " (episode) } } }
    };
    let more = group.count.saturating_sub(group.places.len() as u64);
    html! {
        (first(&group.places, MOST, place))
        @if more > 0 { span.place.muted { "and " (format::count(more)) " more" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureReport;

    fn said<'a>(text: &'a str, job: &'a str, episode: u64) -> FailureEntry<'a> {
        FailureEntry {
            text,
            count: 1,
            place: Some((job, Some(episode))),
            log: Some("log/rank0.log"),
            stderr: &[],
        }
    }

    #[test]
    fn reasons_that_differ_in_numbers_are_one() {
        let all = [
            said("out of memory", "a", 0),
            said("process 4312 exited with signal 9", "a", 1),
            said("process 99 exited with signal 11", "b", 7),
        ];
        let found = grouped(all.into_iter());
        let reasons: Vec<_> = found
            .iter()
            .map(|reason| (reason.text, reason.count))
            .collect();
        let signals = ("process 4312 exited with signal 9", 2);
        assert_eq!(reasons, [signals, ("out of memory", 1)]);
        assert_eq!(found[0].places, [("a", Some(1)), ("b", Some(7))]);
        assert_eq!(found[0].logs, ["log/rank0.log"], "each once");
    }

    #[test]
    fn places_are_named_and_then_counted() {
        let found = grouped((0..100).map(|episode| said("hung", "a", episode)));
        let text = places(&found[0]).into_string();
        assert_eq!(text.matches("episode").count(), MOST);
        assert!(text.contains("and 96 more"), "{text}");
    }

    #[test]
    fn what_is_counted_by_reason_is_not_counted_again() {
        let reason = |text: &str, count| Reason {
            reason: text.to_owned(),
            count,
        };
        let failure = |job: &str| FailureReport {
            job: job.to_owned(),
            episode: None,
            rank: None,
            reason: "step 7: NaN".to_owned(),
            log: None,
        };
        let failures = vec![failure("a"), failure("b")];
        let by_reason = vec![reason("step 1: NaN", 3000), reason("step 7: NaN", 1)];
        let report = Report {
            failures: failures.clone(),
            failures_by_reason: by_reason,
            ..crate::page::tests::report()
        };
        let found = grouped(broken(&report));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].count, 3001);
        assert_eq!(found[0].places.len(), 2);
        let older = Report {
            failures,
            ..crate::page::tests::report()
        };
        assert_eq!(grouped(broken(&older))[0].count, 2);
    }
}
