//! The failure policy: what the failure of one rank means for the others (`--failure-policy`), and
//! the number of restarts.

use crate::cli::Cli;
use crate::plan::FailurePolicy;
use crate::plan::error::PlanError;

/// Default number of restarts per rank of a built-in program. A night of evaluations survives a few
/// crashes of a simulator or a driver; a crash at every start uses them up within seconds.
pub(crate) const RESTARTS: u32 = 6;

impl FailurePolicy {
    /// Returns the policy for `--failure-policy`. By default ranks of a built-in program are
    /// independent; those of any other program may depend on each other.
    pub fn new(cli: &Cli) -> FailurePolicy {
        match cli.failure_policy.as_deref() {
            Some("isolate") => FailurePolicy::Isolate,
            Some(_) => FailurePolicy::Torchrun,
            None if cli.is_built_in() => FailurePolicy::Isolate,
            None => FailurePolicy::Torchrun,
        }
    }

    /// Returns `--max-restarts`, which applies to all ranks together or to each rank.
    ///
    /// # Errors
    /// Returns an error for a negative number.
    pub fn max_restarts(self, cli: &Cli) -> Result<u32, PlanError> {
        if self == FailurePolicy::Isolate && cli.is_built_in() && !cli.is_given("max-restarts") {
            return Ok(RESTARTS);
        }
        u32::try_from(cli.max_restarts).map_err(|_| PlanError::MaxRestarts(cli.max_restarts))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::{CliRequest, Environment, parse};

    fn policy(line: &str) -> (FailurePolicy, u32) {
        let words = line.split(' ').map(OsString::from).collect();
        let Ok(CliRequest::Launch(cli)) = parse(words, &Environment::default()) else {
            panic!("no launch: {line}")
        };
        let policy = FailurePolicy::new(&cli);
        (policy, policy.max_restarts(&cli).unwrap())
    }

    #[test]
    fn ranks_of_built_in_programs_fail_each_for_itself_and_others_together() {
        assert_eq!(policy("eval --jobs j"), (FailurePolicy::Isolate, 6));
        assert_eq!(policy("serve --policy p"), (FailurePolicy::Isolate, 6));
        assert_eq!(policy("train.py"), (FailurePolicy::Torchrun, 0));
        assert_eq!(
            policy("--no-python eval"),
            (FailurePolicy::Torchrun, 0),
            "a program of that name is not ours"
        );
    }

    #[test]
    fn either_can_be_asked_for() {
        assert_eq!(
            policy("--failure-policy torchrun eval --jobs j"),
            (FailurePolicy::Torchrun, 0)
        );
        assert_eq!(
            policy("--failure_policy=isolate worker.py"),
            (FailurePolicy::Isolate, 0)
        );
    }

    #[test]
    fn a_number_of_restarts_that_is_given_counts() {
        assert_eq!(policy("--max-restarts 0 eval --jobs j").1, 0);
        assert_eq!(
            policy("--max-restarts 7 --failure-policy isolate worker.py").1,
            7
        );
    }
}
