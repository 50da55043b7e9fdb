//! Whether there is room for an evaluation: at most one rank per unit of work, a warning if there
//! are far more ranks than CPU cores, and an error if the machine or a GPU of the placement cannot
//! hold them.
//!
//! ```text
//! asked for ─► at most one per unit of work ─► warning above a few per core ─► error beyond memory
//! ```

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use fit::{Fit, GpuBudget, Measured, MemoryOptions, MemoryPlanner, Need, Proposal};
use jobs::assign::{Assignment, Shard, idle};
use jobs::bytes::ByteSize;
use jobs::count::counted;
use jobs::eval_args::EvalArgs;
use jobs::job::{Job, Status};
use jobs::placement::{Placement, Resources};
use jobs::refusal::Refusal;
use jobs::setup::Setup;
use report::compare::sequential::SequentialComparison;

use crate::node::Node;
use crate::node::nvml::GpuMemory;
use crate::say::Note;

/// Number of ranks per core above which a warning is printed: ranks with simulators take turns at
/// two or three per core.
const RANKS_A_CORE: usize = 4;

/// Memory that a running rank needs at least, without environments and policies; 54 MiB were
/// measured.
const LEAST: ByteSize = ByteSize(48 << 20);

/// Number of jobs whose proposals are printed with an error.
const NAMED: usize = 4;

/// Returns the largest number of ranks that can have work, or `None` if the environments of a job
/// are shared by all ranks.
fn units(jobs: &[Job], shard: Shard) -> Option<usize> {
    if jobs.iter().any(|job| job.total_num_envs.is_some()) {
        return None;
    }
    let units = jobs.iter().map(|job| match (shard, job.episodes()) {
        (Shard::Episodes, Some(count)) => usize::try_from(count).unwrap_or(usize::MAX),
        _ => 1,
    });
    Some(units.fold(0, usize::saturating_add).max(1))
}

/// Returns how many of `nproc` ranks per node can have work on at least `nodes` nodes, and a note
/// if those are fewer.
pub(super) fn useful(
    jobs: &[Job],
    shard: Shard,
    nproc: usize,
    nodes: usize,
) -> (usize, Option<Note>) {
    let units_of = |shard| units(jobs, shard);
    let Some(units) = units_of(shard).filter(|units| units.div_ceil(nodes) < nproc) else {
        return (nproc, None);
    };
    let each = units.div_ceil(nodes);
    let what = match shard {
        Shard::Jobs => "job",
        Shard::Episodes => "episode",
    };
    let has_more = units_of(Shard::Episodes).is_some_and(|episodes| episodes > units);
    let advice = match has_more {
        true => "; --shard episodes would divide the episodes of a job",
        false => "",
    };
    let on_each = if nodes > 1 { " on each node" } else { "" };
    let note = format!(
        "{} requested{on_each}, but only {} to run: {} will be started{on_each}{advice}",
        counted(nproc, "rank"),
        counted(units, what),
        counted(each, "rank"),
    );
    (each, Some(Note::warning(note)))
}

/// Returns a warning if there are far more ranks than cores.
pub(super) fn crowd(nproc: usize, cpus: usize) -> Option<Note> {
    let most = cpus.saturating_mul(RANKS_A_CORE);
    (cpus > 0 && nproc > most).then(|| {
        Note::warning(format!(
            "{nproc} ranks share {cpus} cores: more than {most} only slow each other down"
        ))
    })
}

/// Checks that the machine has the memory that the ranks need at least.
///
/// # Errors
/// Refuses the ranks if it does not.
pub(super) fn check_memory(nproc: usize, node: &Node) -> anyhow::Result<()> {
    let needed = ByteSize(LEAST.0.saturating_mul(nproc as u64));
    let memory = node.memory.map_or(needed, ByteSize);
    ensure!(
        needed <= memory,
        "{nproc} ranks need at least {needed} of memory, {LEAST} each before any environment or \
         policy, but this node has {memory}; --no-memory-check starts them anyway"
    );
    Ok(())
}

/// Returns a note about ranks that will have nothing to do and what would use them, or `None` if
/// each has something.
pub(super) fn idlers(jobs: &[Job], world_size: usize, assignment: Assignment) -> Option<Note> {
    let now = idle(jobs, world_size, assignment);
    if now == 0 {
        return None;
    }
    let pending = jobs.iter().filter(|job| job.status == Status::Pending);
    let by_episodes = Assignment {
        shard: Shard::Episodes,
        ..assignment
    };
    let advice = match (assignment.shard, idle(jobs, world_size, by_episodes)) {
        (Shard::Jobs, 0) => "; --shard episodes gives episodes to all of them".to_owned(),
        (Shard::Jobs, fewer) if fewer < now => {
            format!("; --shard episodes leaves {fewer} without work")
        }
        (Shard::Jobs, _) => ", and --shard episodes would not change that".to_owned(),
        (Shard::Episodes, _) => ", and too few episodes for more".to_owned(),
    };
    Some(Note::info(format!(
        "{now} of {} {} nothing to do: the run has {}{advice}",
        counted(world_size, "rank"),
        if now == 1 { "has" } else { "have" },
        counted(pending.count(), "job"),
    )))
}

/// Returns what limits a sequential test (`--stop-when`): a note if it can use fewer episodes than
/// the run has, or if its jobs count less.
pub(super) fn limits(comparison: &SequentialComparison, jobs: &[Job]) -> Option<Note> {
    let rounds = comparison.comparable_rounds();
    let clustered = comparison.clustered_jobs();
    let longest = jobs.iter().filter_map(Job::episodes).max().unwrap_or(0);
    let mut limits = Vec::new();
    if rounds < longest {
        limits.push(format!(
            "the test can compare {} of {longest} in each job, those of the shortest job{}",
            counted(rounds, "episode"),
            match comparison.claim() {
                Some(_) => "",
                None => " that the reference has",
            }
        ));
    }
    if clustered > 0 {
        limits.push(format!(
            "{clustered} jobs have the same `seed` as another one and count together, so that the \
             test needs more episodes than with seeds of their own"
        ));
    }
    if let Some(margin) = comparison.smallest_margin() {
        limits.push(format!(
            "if this run solves the claimed share, all of its episodes exclude a difference of \
             {:.1} points",
            margin * 100.0
        ));
    }
    (!limits.is_empty()).then(|| Note::info(limits.join("; ")))
}

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
pub(super) fn check_gpus(
    room: &GpuBudgets,
    setup: &Setup,
    placement: &Placement,
) -> anyhow::Result<()> {
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

#[cfg(test)]
mod tests {
    use jobs::assign::Assign;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn idle_ranks_are_told_with_what_would_use_them_and_nothing_that_would_not() {
        let said = |lengths: &[Value], world_size, shard| {
            let jobs = jobs::samples::jobs(lengths.iter().cloned());
            let assign = Assign::Modulo;
            let note = idlers(&jobs, world_size, Assignment { assign, shard });
            note.map(String::from).unwrap_or_default()
        };
        let one = [json!({"num_episodes": 50})];
        let short = [
            json!({"num_episodes": 1}),
            json!({"name": "b", "num_episodes": 2}),
        ];
        let steps = [json!({"num_episodes": null, "num_steps": 9})];
        for (jobs, world_size, shard, wanted) in [
            (
                &one[..],
                4,
                Shard::Jobs,
                "3 of 4 ranks have nothing to do: the run has 1 job; --shard episodes gives \
                 episodes to all of them",
            ),
            (&one, 4, Shard::Episodes, ""),
            (&one, 1, Shard::Jobs, ""),
            (
                &short,
                4,
                Shard::Jobs,
                "2 of 4 ranks have nothing to do: the run has 2 jobs; --shard episodes leaves 1 \
                 without work",
            ),
            (
                &short,
                4,
                Shard::Episodes,
                "1 of 4 ranks has nothing to do: the run has 2 jobs, and too few episodes for more",
            ),
            (
                &steps,
                2,
                Shard::Jobs,
                "1 of 2 ranks has nothing to do: the run has 1 job, and --shard episodes would \
                 not change that",
            ),
        ] {
            assert_eq!(said(jobs, world_size, shard), wanted);
        }
    }
}
