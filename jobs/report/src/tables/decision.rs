//! Describes the decision of a sequential test in one line.

use jobs::count::counted;
use jobs::journal::{Decision, Verdict};

/// Returns what a sequential test has decided, on how many rounds, and the difference.
pub fn decision(decision: &Decision) -> String {
    let Decision {
        verdict,
        rounds,
        against,
        ..
    } = decision;
    let points = decision.margin * 100.0;
    let meaning = match verdict {
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
    let unit = match decision.claim {
        Some(_) => "episode",
        None => "pair",
    };
    let mut text = format!(
        "{} after {}, {}: {meaning}",
        verdict.as_str(),
        counted(*rounds, "round"),
        counted(pairs(decision), unit),
    );
    if decision.errors > 0 {
        text += &format!(", {} left out for errors", counted(decision.errors, unit));
    }
    let reference = match decision.claim {
        Some(claim) => format!("the claimed {claim}"),
        None => format!("`{against}`"),
    };
    text + &format!("; difference from {reference}: {}", difference(decision))
}

/// Returns the number of pairs that count. The journal may come from another user.
fn pairs(decision: &Decision) -> u64 {
    [
        decision.both,
        decision.only_a,
        decision.only_b,
        decision.neither,
    ]
    .into_iter()
    .fold(0, u64::saturating_add)
}

fn difference(decision: &Decision) -> String {
    let (Some(difference), Some([low, high])) = (decision.difference, decision.interval) else {
        return "unknown".to_owned();
    };
    format!(
        "{:+.1} points ({} %, at any time: {:+.1} to {:+.1})",
        difference * 100.0,
        percent(1.0 - decision.level),
        low * 100.0,
        high * 100.0
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
