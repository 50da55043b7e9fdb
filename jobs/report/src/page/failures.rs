//! Shows what failed: errors by reason, and lost simulators.
//!
//! Messages about the same cause often differ in process and episode numbers, so reasons that
//! differ only in numbers are grouped.

use std::cmp::Reverse;

use jobs::format;
use jobs::journal::EnvLost;
use maud::{Markup, html};

use crate::page::parts::{self, Cell, clip, count, first, heads, href};
use crate::{OrderedMap, Report};

/// Maximum number of places and of logs shown for a reason.
const MOST: usize = 4;

/// Maximum number of characters shown of a reason.
const MOST_TEXT: usize = 1200;

/// Errors with the same reason.
#[derive(Debug, Default, PartialEq, Eq)]
struct Failures<'a> {
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

pub(super) const NAMES: [&str; 3] = ["failures", "Errors", "What broke"];

pub(super) fn section(report: &Report) -> Markup {
    let broken = grouped(broken(report));
    let lost = grouped(report.env_losses.iter().map(lost));
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

/// Returns the errors of a report: the number of errors for each reason, then the places and logs
/// of the first errors.
fn broken(report: &Report) -> impl Iterator<Item = Failures<'_>> {
    let counts = report.failures_by_reason.iter().map(|reason| Failures {
        text: &reason.reason,
        count: reason.count,
        ..Failures::default()
    });
    let places = report.failures.iter().map(|failure| Failures {
        text: &failure.reason,
        places: vec![(&failure.job, failure.episode)],
        logs: failure.log.iter().map(String::as_str).collect(),
        ..Failures::default()
    });
    counts.chain(places)
}

fn lost(loss: &EnvLost) -> Failures<'_> {
    Failures {
        text: &loss.reason,
        count: 1,
        places: vec![(&loss.job, Some(loss.episode))],
        stderr: &loss.stderr,
        ..Failures::default()
    }
}

/// Groups errors, the most frequent first; among equally frequent groups, the one that occurred
/// first.
fn grouped<'a>(all: impl Iterator<Item = Failures<'a>>) -> Vec<Failures<'a>> {
    let mut groups: OrderedMap<String, Failures> = OrderedMap::default();
    for next in all {
        let group = groups.entry(without_numbers(next.text));
        let group = group.or_insert(Failures {
            text: next.text,
            stderr: next.stderr,
            ..Failures::default()
        });
        group.count += next.count;
        group.places.extend(next.places);
        group.places.truncate(MOST);
        for log in next.logs {
            if group.logs.len() < MOST && !group.logs.contains(&log) {
                group.logs.push(log);
            }
        }
    }
    groups.sort_by_key(|_, group| Reverse(group.count));
    groups.into_values().collect()
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

fn table(groups: &[Failures], name: &str) -> Markup {
    let log = |log: &&str| html! { a href=(href(log)) { (log) } };
    let row = |group: &Failures| {
        vec![
            count(group.count),
            Cell::from(reason(group)).class("reason"),
            Cell::from(places(group)).class("where"),
            first(&group.logs, MOST, log).into(),
        ]
    };
    let heads = heads(["Times", "Reason", "Where", "Log"]);
    parts::table([name, "reasons"], &heads, groups.iter(), row)
}

/// Shows the first line of a reason, and the rest on demand.
fn reason(group: &Failures) -> Markup {
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

fn places(group: &Failures) -> Markup {
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
    use crate::{FailureReport, Reason};

    fn said<'a>(text: &'a str, job: &'a str, episode: u64) -> Failures<'a> {
        Failures {
            text,
            count: 1,
            places: vec![(job, Some(episode))],
            logs: vec!["log/rank0.log"],
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
            reason: "step 7: NaN".to_owned(),
            ..FailureReport::default()
        };
        let failures = vec![failure("a"), failure("b")];
        let by_reason = vec![reason("step 1: NaN", 3000), reason("step 7: NaN", 1)];
        let report = Report {
            failures,
            failures_by_reason: by_reason,
            ..crate::page::tests::report()
        };
        let found = grouped(broken(&report));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].count, 3001);
        assert_eq!(found[0].places.len(), 2);
    }
}
