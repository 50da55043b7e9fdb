//! Describes the decision of a sequential test in one line.

use jobs::count::counted;
use jobs::format;
use jobs::journal::{Decision, Verdict};

/// Returns what a sequential test has decided, on how many rounds, and the difference.
pub fn decision(decision: &Decision) -> String {
    let points = decision.margin * 100.0;
    let meaning = match decision.verdict {
        Verdict::Passed => format!("the run has not lost {points} points or more"),
        Verdict::Regression => format!(
            "the run has solved fewer episodes, and a loss of {points} points or more is not \
             excluded"
        ),
        // Two one-sided tests: the interval below has two sides, and can reach beyond the margin.
        Verdict::Same if decision.claim.is_none() => format!(
            "the rates differ by less than {points} points, by a test of each side at {} %",
            percent(decision.level)
        ),
        Verdict::Same => format!("the rates differ by less than {points} points"),
        Verdict::Different => {
            format!("the rates differ, and a difference of {points} points or more is not excluded")
        }
        Verdict::Undecided => format!("{points} points are neither shown nor excluded"),
    };
    let (unit, reference) = match decision.claim {
        Some(claim) => ("episode", format!("the claimed {claim}")),
        None => ("pair", format!("`{}`", decision.against)),
    };
    // The journal may come from another user.
    let found = [
        decision.both,
        decision.only_a,
        decision.only_b,
        decision.neither,
    ];
    let pairs = counted(found.into_iter().fold(0, u64::saturating_add), unit);
    let broken = match decision.errors {
        0 => String::new(),
        errors => format!(", {} left out for errors", counted(errors, unit)),
    };
    let difference = match (decision.difference, decision.interval) {
        (Some(difference), Some(interval)) => format!(
            "{} points ({} %, at any time: {})",
            format::points(difference),
            percent(1.0 - decision.level),
            format::points_interval(interval)
        ),
        _ => "unknown".to_owned(),
    };
    format!(
        "{} after {}, {pairs}: {meaning}{broken}; difference from {reference}: {difference}",
        decision.verdict.as_str(),
        counted(decision.rounds, "round"),
    )
}

/// Returns a share in percent, without the last digits of a binary fraction.
fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(verdict: Verdict, errors: u64) -> String {
        decision(&crate::tests::lines::decision(verdict, errors))
    }

    #[test]
    fn a_decision_names_rounds_pairs_margin_and_difference() {
        let all = [
            (Verdict::Regression, 0),
            (Verdict::Same, 0),
            (Verdict::Undecided, 2),
        ];
        insta::assert_snapshot!(all.map(|(verdict, errors)| of(verdict, errors)).join("\n"));
    }
}
