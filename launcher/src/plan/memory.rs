//! The memory of the GPUs of a placement, for `eval` and `fit`, and whether an evaluation fits into
//! it.

use std::collections::BTreeMap;

use anyhow::bail;
use fit::{Fit, GpuBudget, Measured, MemoryOptions, MemoryPlanner, Need, Proposal};
use jobs::bytes::ByteSize;
use jobs::eval_args::EvalArgs;
use jobs::placement::{Placement, Resources};
use jobs::refusal::Refusal;
use jobs::setup::Setup;

use crate::node::nvml::GpuMemory;

/// Number of jobs whose proposals are printed with an error.
const NAMED: usize = 4;

/// The memory of the GPUs by their numbers, and the options that affect memory.
#[derive(Clone, Debug, Default)]
pub struct GpuBudgets {
    budgets: BTreeMap<usize, GpuBudget>,
    terms: MemoryOptions,
}

impl GpuBudgets {
    /// Returns what is known before anything is started. `memory` is NVML's report on this node's
    /// visible GPUs; other nodes are assumed to have the same ones. A GPU whose memory is not
    /// reported gets a budget only by `--gpu-memory`; without GPUs there are no budgets.
    ///
    /// # Errors
    /// Refuses the run of `--measured` if it has no plan or report.
    pub fn new(
        args: &EvalArgs,
        resources: Resources,
        memory: &[GpuMemory],
    ) -> Result<Self, Refusal> {
        let measured = args
            .measured
            .as_deref()
            .map(Measured::read)
            .transpose()?
            .unwrap_or_default();
        let terms = MemoryOptions {
            max_batch: args.max_batch,
            pipeline_stages: args.pipeline_stages,
            are_policies_on_cpu: args
                .policy_device
                .as_deref()
                .is_some_and(|device| device.trim() == "cpu"),
            measured,
        };
        let given = args
            .gpu_memory
            .map(|ByteSize(bytes)| GpuBudget::whole(bytes));
        let mut budgets = BTreeMap::new();
        if let Resources::Gpus { per_node, nodes } = resources {
            for gpu in 0..per_node * nodes {
                let found = resources.device(gpu).and_then(|device| memory.get(device));
                let told = found
                    .map(|memory| GpuBudget::of_gpu(memory.total, memory.used, args.gpu_memory));
                budgets.extend(told.or(given).map(|budget| (gpu, budget)));
            }
        }
        Ok(Self { budgets, terms })
    }

    /// Replaces the memory of this machine by `bytes` on each of these GPUs.
    #[must_use]
    pub fn of_size(
        mut self,
        gpus: impl IntoIterator<Item = usize>,
        ByteSize(bytes): ByteSize,
    ) -> Self {
        self.budgets = gpus
            .into_iter()
            .map(|gpu| (gpu, GpuBudget::whole(bytes)))
            .collect();
        self
    }

    /// Returns the memory planner for the jobs on a placement.
    pub fn planner<'a>(&self, setup: &'a Setup, placement: &'a Placement) -> MemoryPlanner<'a> {
        let of = (placement, setup.assignment);
        MemoryPlanner::new(
            &setup.file.jobs,
            of,
            self.terms.clone(),
            self.budgets.clone(),
        )
    }

    /// Returns whether everything fits if every job has `num_envs` environments.
    pub fn holds(&self, setup: &Setup, placement: &Placement, num_envs: usize) -> bool {
        let setup = setup.clone().with_num_envs(num_envs);
        let planner = self.planner(&setup, placement);
        let is_too_much = |need: &Need| need.fit(planner.budget(need.gpu)).is_too_much();
        setup.check(placement).is_ok() && !planner.needs().iter().any(is_too_much)
    }
}

/// Refuses an evaluation that cannot fit: weights and declared or measured environments alone
/// need more than a GPU has free.
///
/// # Errors
/// Refuses the first such GPU, with a proposal that would fit.
pub(super) fn check(room: &GpuBudgets, setup: &Setup, placement: &Placement) -> anyhow::Result<()> {
    let planner = room.planner(setup, placement);
    for need in planner.needs() {
        let Some(budget) = planner
            .budget(need.gpu)
            .filter(|budget| need.fit(Some(*budget)) == Fit::Never)
        else {
            continue;
        };
        let proposal = fewer(&planner.propose(), |num_envs| {
            room.holds(setup, placement, num_envs)
        });
        let sum = need.sum();
        bail!(
            "GPU {} has {} free, but at least {} are required ({}), {} in total by estimate; \
             {proposal}; --no-memory-check starts it anyway",
            need.gpu,
            budget.free,
            sum.certain,
            parts(&need),
            sum.bytes
        );
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
