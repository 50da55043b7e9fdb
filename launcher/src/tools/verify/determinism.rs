//! `--determinism K`: runs some episodes again with another number of ranks and environments, and
//! compares the results. A result that depends on those numbers is not a property of the policy.

use jobs::count::counted;
use jobs::journal;
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use report::Merged;
use report::certificate::Machine;
use report::verify::rerun;

use crate::tools::rerun::{RerunArgs, RerunRequest, named};

/// The episodes to run again.
pub(super) struct Determinism {
    /// How many.
    pub(super) count: usize,
    /// Seed that chooses them.
    pub(super) seed: u64,
}

/// The result of the second run.
pub(super) struct RerunResult {
    /// What was done, as a line for the user.
    pub(super) note: String,
    /// The outcomes that differ.
    pub(super) wrong: Vec<String>,
}

impl Determinism {
    /// Runs the episodes again.
    pub(super) fn run(
        &self,
        args: &RerunArgs,
        of: &RunFolder,
        merged: &Merged,
    ) -> Result<RerunResult, Refusal> {
        let (plan, named) = (merged.plan(), |err| named(of, err));
        let scored = rerun::repeatable(merged);
        let chosen = rerun::choose(scored, self.count, &self.seed.to_string());
        let start = journal::first_rank(&of.journals()).map_err(named)?;
        let again = args.run(&RerunRequest {
            whose: format!("the plan of `{}`", of.root().display()),
            asked: "--determinism",
            plan,
            chosen: &chosen,
            world_size: plan.world_size,
            machine: &Machine::from(&start.unwrap_or_default()),
        })?;
        let before = rerun::outcomes(merged, &chosen).map_err(named)?;
        let wrong = rerun::differences(&before, &again.outcomes);
        let kept = again.remove_if(wrong.is_empty())?;
        let (episodes, place) = (counted(chosen.len(), "episode"), again.place());
        let note = format!("run again: {episodes}, by {place}{kept}{}", left_out(plan));
        Ok(RerunResult { note, wrong })
    }
}

/// Returns a clause with the jobs whose results are not the same again.
fn left_out(plan: &RunPlan) -> String {
    let measured = plan.jobs.iter().filter(|job| !job.is_repeatable());
    let names: Vec<_> = measured.map(|job| job.name.as_str()).collect();
    match names[..] {
        [] => String::new(),
        [name] => format!("; not repeated, because its latency is measured: {name}"),
        _ => format!(
            "; not repeated, because their latency is measured: {}",
            names.join(", ")
        ),
    }
}
