//! The failure policy: what the failure of one rank means for the others (`--failure-policy`), and
//! the number of restarts.

use anyhow::anyhow;

use crate::cli::Cli;
use crate::plan::FailurePolicy;

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
    pub fn max_restarts(self, cli: &Cli) -> anyhow::Result<u32> {
        if self == FailurePolicy::Isolate && cli.is_built_in() && !cli.is_given("max-restarts") {
            return Ok(RESTARTS);
        }
        let given = cli.max_restarts;
        u32::try_from(given).map_err(|_| anyhow!("max_restarts must be >= 0, got {given}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Environment;
    use crate::tests::cli;

    #[test]
    fn ranks_of_built_in_programs_fail_each_for_itself_and_others_together() {
        let (isolate, torchrun) = (FailurePolicy::Isolate, FailurePolicy::Torchrun);
        for (line, wanted) in [
            ("eval --jobs j", (isolate, 6)),
            ("serve --policy p", (isolate, 6)),
            ("train.py", (torchrun, 0)),
            // A program of that name is not ours.
            ("--no-python eval", (torchrun, 0)),
            // Either can be asked for, and a number of restarts that is given counts.
            ("--failure-policy torchrun eval --jobs j", (torchrun, 0)),
            ("--failure_policy=isolate worker.py", (isolate, 0)),
            ("--max-restarts 0 eval --jobs j", (isolate, 0)),
            (
                "--max-restarts 7 --failure-policy isolate worker.py",
                (isolate, 7),
            ),
        ] {
            let cli = cli(line, &Environment::default());
            let policy = FailurePolicy::new(&cli);
            let restarts = policy.max_restarts(&cli).unwrap();
            assert_eq!((policy, restarts), wanted, "{line}");
        }
    }
}
