//! The preflight check of `eval`: whether an evaluation fits into the memory of its GPUs.

use fit::memory::{Fit, Need, Proposal};
use jobs::placement::{Placement, Resources};
use jobs::refusal::Refusal;
use jobs::setup::Setup;

use crate::plan::decide::eval::dedicated::Dedicated;
use crate::plan::decide::eval::room::GpuBudgets;

/// Number of jobs whose proposals are printed with an error.
const NAMED: usize = 4;

/// Refuses an evaluation that cannot fit: weights and declared or measured environments alone
/// need more than a GPU has free.
///
/// # Errors
/// Refuses the first such GPU, with a proposal that would fit.
pub fn check(
    room: &GpuBudgets,
    setup: &Setup,
    placement: &Placement,
    resources: Resources,
) -> Result<(), Refusal> {
    let planner = room.planner(setup, placement);
    for need in planner.needs() {
        let Some(budget) = planner
            .budget(need.gpu)
            .filter(|budget| need.fit(Some(*budget)) == Fit::Never)
        else {
            continue;
        };
        let fewer = fewer(&planner.propose(), |num_envs| {
            room.holds(setup, placement, num_envs)
        });
        let dedicated = match resources {
            Resources::Gpus { per_node, nodes: 1 } => {
                Dedicated::find(room, setup, placement, per_node)
            }
            Resources::Gpus { .. } | Resources::Labels => None,
        };
        let proposal = dedicated.map_or(fewer.clone(), |dedicated| format!("{fewer}; {dedicated}"));
        let sum = need.sum();
        return Err(Refusal::new(format_args!(
            "GPU {} has {} free, but at least {} are required ({}), {} in total by estimate; \
             {proposal}; --no-memory-check starts it anyway",
            need.gpu,
            budget.free,
            sum.certain,
            parts(&need),
            sum.bytes
        )));
    }
    Ok(())
}

/// Lists the certain parts of a need.
fn parts(need: &Need) -> String {
    let parts = [
        ("weights", need.weights.certain),
        ("environments", need.environments.certain),
    ];
    let named = parts
        .iter()
        .filter(|(_, bytes)| bytes.0 > 0)
        .map(|(name, bytes)| format!("{name} {bytes}"));
    named.collect::<Vec<_>>().join(", ")
}

/// Returns what would fit, for the jobs that have to change, and the option that sets it for all
/// jobs.
fn fewer(proposals: &[Proposal], holds: impl Fn(usize) -> bool) -> String {
    let changed = proposals.iter().filter_map(|proposal| {
        let proposed = proposal
            .proposed_num_envs
            .filter(|proposed| *proposed < proposal.num_envs)?;
        Some(format!("num_envs {proposed} of `{}`", proposal.job))
    });
    let changed: Vec<_> = changed.collect();
    let fewest = proposals
        .iter()
        .filter_map(|proposal| proposal.proposed_num_envs)
        .min();
    let option = fewest.filter(|fewest| !changed.is_empty() && holds(*fewest));
    let option = option
        .map(|fewest| format!(" (--num-envs {fewest})"))
        .unwrap_or_default();
    let would_fit = match changed.len() {
        0 => return "fewer environments do not help".to_owned(),
        count if count > NAMED => {
            format!(
                "{} and of {} more jobs would fit",
                changed[..NAMED].join(", "),
                count - NAMED
            )
        }
        _ => format!("{} would fit", changed.join(", ")),
    };
    format!("{would_fit}{option}")
}
