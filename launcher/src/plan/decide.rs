//! [`Plan::new`]: asks every part, in the order in which torchrun finds out what is wrong.

use crate::cli::{Cli, Environment};
use crate::events::EventLog;
use crate::node::Node;
use crate::plan::error::PlanError;
use crate::plan::meeting::Meeting;
use crate::plan::program::Program;
use crate::plan::ranks::Ranks;
use crate::plan::{LogPlan, Plan, SignalPlan, caveats, conf, eval, limits, nodes, nproc, numa, variables};
use crate::slurm::Slurm;

impl Plan {
    /// What `cli` asks for in `env` on `node`. Touches nothing but the names of files.
    ///
    /// # Errors
    /// The first thing that cannot be done.
    pub fn new(cli: &Cli, env: &Environment, node: &Node) -> Result<Plan, PlanError> {
        let slurm = Slurm::new(cli, env)?;
        let mut plan = Plan::of_options(&slurm.cli, slurm.first_local_rank(), env, node)?;
        numa::place(&slurm.cli, env, node, &mut plan.ranks)?;
        slurm.complete(&mut plan, env, node);
        plan.notes.extend(caveats::open_files(node.open_files, plan.nnodes, plan.ranks.len()));
        plan.notes.extend(caveats::port(&plan, node.connection_ports));
        Ok(plan)
    }

    /// With options that no variable of SLURM changes any more.
    fn of_options(cli: &Cli, first_local_rank: usize, env: &Environment, node: &Node) -> Result<Plan, PlanError> {
        let nodes = nodes::nodes(&cli.nnodes)?;
        let max_restarts = limits::max_restarts(cli)?;
        let visible_devices = env.get("CUDA_VISIBLE_DEVICES").map(|list| list.to_string_lossy());
        let nproc = nproc::nproc(&cli.nproc_per_node, node, visible_devices.as_deref())?;
        let pairs = conf::pairs(&cli.rdzv_conf)?;
        caveats::refuse(cli)?;
        let ranks = Ranks::new(cli, first_local_rank, nproc)?;
        let logs = LogPlan::new(cli, env)?;
        let program = Program::new(cli, env, node)?;
        let eval = match &program {
            Program::Eval { args, .. } => {
                Some(eval::check(args, nodes.max * nproc, node.visible_gpus(visible_devices.as_deref()))?)
            }
            Program::Foreign { .. } => None,
        };
        let Meeting { run_id, store, rendezvous } = Meeting::new(cli, nodes, &pairs, node)?;
        limits::check_monitor_interval(cli)?;
        let shutdown_timeout = limits::shutdown_timeout(cli, env)?;
        let (signals, signal_notes) = SignalPlan::new(&cli.signals_to_handle);
        let (variables, thread_note) = variables::shared(env, nproc);
        // The rule is right for our own program, so there is nothing to tune.
        let thread_note = thread_note.filter(|_| eval.is_none());
        let notes = caveats::notes(cli, env).into_iter().chain(signal_notes).chain(thread_note).collect();
        Ok(Plan {
            nnodes: nodes.max,
            run_id,
            role: cli.role.clone(),
            max_restarts,
            shutdown_timeout,
            store,
            rendezvous,
            signals,
            ranks: ranks.plan(&program, env, logs.disabled)?,
            logs,
            title: program.title().to_owned(),
            env: variables,
            open_files: node.open_files,
            events: EventLog::parse(&cli.event_log_handler).unwrap_or_default(),
            reports_usage: cli.rusage,
            notes,
            eval,
        })
    }
}

#[cfg(test)]
mod tests;
