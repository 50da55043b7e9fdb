//! The memory of the GPUs of a placement, for `eval` and `fit`.

use std::collections::BTreeMap;

use fit::memory::{GpuBudget, Measured, MemoryOptions, MemoryPlanner, Need};
use jobs::bytes::ByteSize;
use jobs::eval_args::EvalArgs;
use jobs::placement::{Placement, Resources};
use jobs::refusal::Refusal;
use jobs::setup::Setup;

use crate::node::nvml::GpuMemory;

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
        let mut budgets = BTreeMap::new();
        if let Resources::Gpus { per_node, nodes } = resources {
            for gpu in 0..per_node * nodes {
                let found = resources.device(gpu).and_then(|device| memory.get(device));
                let told = found
                    .map(|memory| GpuBudget::of_gpu(memory.total, memory.used, args.gpu_memory));
                if let Some(budget) = told.or(args
                    .gpu_memory
                    .map(|ByteSize(bytes)| GpuBudget::whole(bytes)))
                {
                    budgets.insert(gpu, budget);
                }
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
