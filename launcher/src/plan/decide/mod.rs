//! [`LaunchPlan::new`]: makes all decisions of the plan, in the order in which torchrun reports
//! errors.

pub mod caveats;
pub mod eval;
pub mod failure;
pub mod meeting;
pub mod program;
pub mod ranks;
pub mod signals;
pub mod timeouts;

use crate::cli::{Cli, Environment};
use crate::node::Node;
use crate::plan::decide::eval::EvalRequest;
use crate::plan::decide::eval::seating::LaunchSize;
use crate::plan::decide::meeting::{MeetingPlan, conf, nodes};
use crate::plan::decide::program::Program;
use crate::plan::decide::ranks::{Ranks, nproc, numa, variables};
use crate::plan::error::PlanError;
use crate::plan::event_log::EventLog;
use crate::plan::model_server::ServerPlan;
use crate::plan::{FailurePolicy, LaunchPlan, LogPlan, SignalPlan};
use crate::say::note::Note;
use crate::slurm::{Slurm, SlurmTask};

impl LaunchPlan {
    /// Returns the plan for what `cli` asks for in `env` on `node`. Accesses the file system only
    /// to look up names.
    ///
    /// # Errors
    /// Returns an error for the first request that cannot be fulfilled.
    pub fn new(cli: &Cli, env: &Environment, node: &Node) -> Result<LaunchPlan, PlanError> {
        let slurm = Slurm::new(cli, env)?;
        let mut plan = LaunchPlan::of_options(&slurm.cli, slurm.task(), env, node)?;
        numa::place(&slurm.cli, env, node, &mut plan.ranks)?;
        slurm.complete(&mut plan, env, node);
        let open_files = caveats::open_files(node.open_files, plan.nnodes, plan.ranks.len());
        let port = caveats::port(&plan, node.connection_ports);
        plan.notes
            .extend(open_files.into_iter().chain(port).map(Note::warning));
        Ok(plan)
    }

    /// Returns the plan of options into which SLURM's variables have already been merged.
    fn of_options(
        cli: &Cli,
        task: Option<SlurmTask>,
        env: &Environment,
        node: &Node,
    ) -> Result<LaunchPlan, PlanError> {
        let nodes = nodes::nodes(&cli.nnodes)?;
        let failure_policy = FailurePolicy::new(cli);
        let max_restarts = failure_policy.max_restarts(cli)?;
        let visible_devices = env
            .get("CUDA_VISIBLE_DEVICES")
            .map(|list| list.to_string_lossy());
        let asked = EvalRequest::of(cli, env, node)?;
        let given = nproc::nproc(&cli.nproc_per_node, node, visible_devices.as_deref())?;
        let gpus = node.visible_gpus(visible_devices.as_deref());
        let launch = LaunchSize {
            nproc: cli.is_given("nproc-per-node").then_some(given),
            nodes: (nodes.min, nodes.max),
            gpus,
            is_virtual: cli.virtual_local_rank,
        };
        let launch = task.map_or(launch, |task| {
            launch.of_task(task.local_world_size, task.group_world_size)
        });
        let placed = asked
            .as_ref()
            .map(|asked| asked.nproc(launch))
            .transpose()?
            .flatten();
        let nproc = placed.filter(|_| task.is_none()).unwrap_or(given);
        // SLURM decides the number of tasks.
        let alone = asked.as_ref().filter(|_| task.is_none());
        let (nproc, crowd_notes) = alone.map_or(Ok((nproc, Vec::new())), |asked| {
            asked.ranks(nproc, nodes.min, node)
        })?;
        let launch = LaunchSize {
            nproc: launch.nproc.filter(|_| alone.is_none()).or(Some(nproc)),
            ..launch
        };
        let pairs = conf::pairs(&cli.rdzv_conf)?;
        caveats::refuse(cli)?;
        let ranks = Ranks::new(cli, task.map_or(0, |task| task.local_rank), nproc)?;
        let logs = LogPlan::new(cli, env)?;
        let program = Program::new(cli, env, node)?;
        let mut memory = asked
            .as_ref()
            .map(|_| node.memory_of(visible_devices.as_deref()))
            .unwrap_or_default();
        if task.is_some() {
            // Launchers of other tasks may already have started ranks on these GPUs; the planner
            // counts those anyway.
            memory.iter_mut().for_each(|memory| memory.used = 0);
        }
        let eval = asked
            .map(|asked| asked.check(launch, &memory))
            .transpose()?;
        let local_rank = task.map(|task| task.local_rank);
        let served = eval
            .as_ref()
            .map(|eval| ServerPlan::of(eval, env, local_rank))
            .transpose()?
            .flatten();
        let (model_server, server_notes) =
            served.map_or_else(Default::default, |(plan, notes)| (Some(plan), notes));
        let MeetingPlan {
            run_id,
            store,
            rendezvous,
        } = MeetingPlan::new(cli, nodes, &pairs, node)?;
        timeouts::check_monitor_interval(cli)?;
        let shutdown_timeout = timeouts::shutdown_timeout(cli, env)?;
        let (signals, signal_notes) = SignalPlan::new(&cli.signals_to_handle);
        let (mut variables, thread_note) = variables::shared(env, nproc);
        if let Some(eval) = &eval {
            variables.insert(eval::GPUS_VARIABLE.to_owned(), eval.gpus.to_string());
            variables.extend(variables::of_style(cli));
            variables.extend(variables::of_waiting(env));
        }
        // The default is right for the built-in program, so there is nothing to tune.
        let thread_note = thread_note.filter(|_| eval.is_none());
        let seats = eval
            .iter()
            .flat_map(|eval| eval.notes.clone())
            .chain(server_notes)
            .chain(crowd_notes);
        let caveats = caveats::notes(cli, env)
            .into_iter()
            .chain(signal_notes)
            .map(Note::warning);
        let notes = caveats
            .chain(thread_note.map(Note::info))
            .chain(seats)
            .collect();
        Ok(LaunchPlan {
            nnodes: nodes.max,
            run_id,
            role: cli.role.clone(),
            failure_policy,
            max_restarts,
            shutdown_timeout,
            store,
            rendezvous,
            signals,
            ranks: ranks.plan(&program, env, logs.disabled)?,
            logs,
            title: program.title().to_owned(),
            is_built_in: matches!(program, Program::BuiltIn { .. }),
            env: variables,
            open_files: node.open_files,
            events: EventLog::parse(&cli.event_log_handler).unwrap_or_default(),
            reports_usage: cli.rusage,
            notes,
            model_server,
            eval,
        })
    }
}

#[cfg(test)]
mod tests;
