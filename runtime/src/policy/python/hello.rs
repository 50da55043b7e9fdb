//! What a worker says about its policy after it has made it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Most actions of a chunk.
const LONGEST_HORIZON: usize = 4096;
/// Most past steps that a policy looks at.
const MOST_STEPS_BACK: usize = 255;
/// Most versions, and most bytes of one.
const MOST_VERSIONS: usize = 16;
const LONGEST_VERSION: usize = 100;

/// The description of a policy, from a process that may be broken.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct WorkerHello {
    /// Number of actions of a chunk.
    pub(super) action_horizon: usize,
    /// Whether it looks at pictures.
    pub(super) needs_video: bool,
    /// Number of past steps that it looks at.
    pub(super) looks_back: usize,
    /// Whether it keeps a state for each episode.
    pub(super) has_reset: bool,
    /// Versions of the interpreter and of numpy, and of torch if it is imported.
    pub(super) versions: BTreeMap<String, String>,
}

impl WorkerHello {
    /// Returns whether another worker of the policy can take over from one that said this.
    pub(super) fn is_same_policy(&self, other: &Self) -> bool {
        let terms = |hello: &Self| {
            (
                hello.action_horizon,
                hello.needs_video,
                hello.looks_back,
                hello.has_reset,
            )
        };
        terms(self) == terms(other)
    }

    /// Parses and checks the description; `None` if it cannot be taken.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let hello: Self = serde_json::from_slice(text).ok()?;
        let is_version =
            |(name, version): (&String, &String)| name.len().max(version.len()) <= LONGEST_VERSION;
        let is_sane = (1..=LONGEST_HORIZON).contains(&hello.action_horizon)
            && hello.looks_back <= MOST_STEPS_BACK
            && hello.versions.len() <= MOST_VERSIONS
            && hello.versions.iter().all(is_version);
        is_sane.then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_that_makes_no_sense_is_not_taken() {
        let text = |horizon: i64| {
            format!(
                r#"{{"action_horizon": {horizon}, "needs_video": true, "looks_back": 1, "has_reset": false,
                    "versions": {{"python": "3.11"}}}}"#
            )
        };
        assert_eq!(
            WorkerHello::parse(text(8).as_bytes())
                .unwrap()
                .action_horizon,
            8
        );
        assert_eq!(WorkerHello::parse(text(0).as_bytes()), None);
        assert_eq!(WorkerHello::parse(text(-1).as_bytes()), None);
        assert_eq!(WorkerHello::parse(text(1 << 40).as_bytes()), None);
        assert_eq!(WorkerHello::parse(b"{}"), None);
    }
}
