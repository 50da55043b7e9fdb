//! A success rate that somebody has published, as counts: `462/500`.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// Maximum number of episodes of a claim.
const MAX_EPISODES: u64 = 1_000_000;

/// Solved episodes of all episodes, over all tasks together.
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
