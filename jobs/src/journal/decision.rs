//! The decision of a sequential test, which may end a run early.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// What a sequential test is to find out about a run, compared with a reference run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// Has the run lost the margin or more?
    Regression,
    /// Do the rates differ by less than the margin?
    Reproduction,
}

/// What a sequential test has found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A loss of the margin is excluded.
    Passed,
    /// The run has solved significantly fewer episodes, and the loss may be larger than the margin.
    Regression,
    /// The rates differ by less than the margin.
    Same,
    /// The rates differ significantly, and the difference may be larger than the margin.
    Different,
    /// The episodes are too few to tell.
    Undecided,
}

impl Verdict {
    /// Returns the word in `report.json`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Regression => "regression",
            Self::Same => "same",
            Self::Different => "different",
            Self::Undecided => "undecided",
        }
    }
}

/// What a sequential test has decided about a run. Differences are those of this run (B) minus the
/// reference (A).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The reference, as the command line named it.
    pub against: String,
    /// The published rate that the run was compared with, if that is the reference. There are no pairs
    /// then: `only_b` counts the episodes that this run solved, `neither` the others, and the interval
    /// covers that the claim is a sample, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The question that the test answers.
    pub question: Question,
    /// The margin, as a difference of rates: 0.05 is five percentage points.
    pub margin: f64,
    /// Probability of a wrong verdict, at most, over all looks together.
    pub level: f64,
    /// The answer.
    pub verdict: Verdict,
    /// Number of rounds that the test looked at: the first episodes of every job.
    pub rounds: u64,
    /// Number of rounds that the reference and the shortest job allow.
    pub comparable_rounds: u64,
    /// Pairs that both solved.
    pub both: u64,
    /// Pairs that only the reference solved.
    pub only_a: u64,
    /// Pairs that only this run solved.
    pub only_b: u64,
    /// Pairs that neither solved.
    pub neither: u64,
    /// Number of pairs that do not count, because an episode of either run ended with an error.
    pub errors: u64,
    /// Rate of this run minus that of the reference, over the pairs that count.
    pub difference: Option<f64>,
    /// Confidence sequence of the difference at `level`.
    pub interval: Option<[f64; 2]>,
    /// When it was made, RFC 3339 in UTC.
    pub at: String,
    /// The launch that made it; the journal puts it on every line, see
    /// [`crate::journal::Stamp`].
    #[serde(default, skip_serializing)]
    pub launch: Option<String>,
}

/// Maximum number of episodes of a claim.
const MAX_EPISODES: u64 = 1_000_000;

/// A success rate that somebody has published, as counts: `462/500`, over all tasks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Number of solved episodes.
    pub solved: u64,
    /// Number of episodes, at least 1.
    pub episodes: u64,
}

impl Claim {
    /// Returns the share of solved episodes.
    pub fn rate(self) -> f64 {
        self.solved as f64 / self.episodes as f64
    }
}

impl FromStr for Claim {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let counts = text
            .split_once('/')
            .and_then(|(solved, episodes)| Some((solved.parse().ok()?, episodes.parse().ok()?)));
        match counts {
            Some((solved, episodes @ 1..=MAX_EPISODES)) if solved <= episodes => {
                Ok(Self { solved, episodes })
            }
            _ => Err(Refusal::new(format_args!(
                "`{text}` is not a claim: expected SOLVED/EPISODES, for example 462/500"
            ))),
        }
    }
}

impl Display for Claim {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { solved, episodes } = self;
        write!(f, "{solved} of {episodes} ({:.1} %)", self.rate() * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_two_counts() {
        let claim: Claim = "462/500".parse().unwrap();
        assert_eq!((claim.solved, claim.episodes), (462, 500));
        assert_eq!(claim.to_string(), "462 of 500 (92.4 %)");
        assert!("0/1".parse::<Claim>().is_ok());
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "92.4",
            "92.4%",
            "501/500",
            "0/0",
            "-1/5",
            "1/2/3",
            "1/1000001",
        ] {
            let told = text.parse::<Claim>().unwrap_err().to_string();
            assert!(told.contains("expected SOLVED/EPISODES"), "{told}");
        }
    }
}
