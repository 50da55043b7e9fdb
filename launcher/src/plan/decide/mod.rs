//! [`LaunchPlan::new`]: makes all decisions of the plan, in the order in which torchrun reports
//! errors.

pub mod caveats;
pub mod eval;
pub mod failure;
pub mod program;
pub mod ranks;
pub mod signals;
pub mod timeouts;

use std::collections::BTreeMap;

use crate::cli::{Cli, Environment};
use crate::cluster::{self, Inferred, slurm};
use crate::hang::plan::HangPlan;
use crate::node::Node;
use crate::plan::decide::eval::EvalRequest;
use crate::plan::decide::eval::seating::LaunchSize;
use crate::plan::decide::program::Program;
use crate::plan::decide::ranks::{Ranks, nproc, numa, variables};
use crate::plan::eval::EvalPlan;
use crate::plan::event_log::EventLog;
use crate::plan::meeting::{MeetingPlan, Nodes};
use crate::plan::model_server::ServerPlan;
use crate::plan::serve::ServePlan;
use crate::plan::{FailurePolicy, LaunchPlan, LogPlan, Sender, SignalPlan};
use crate::say::note::Note;

impl LaunchPlan {
    /// Returns the plan for what `cli` asks for in `env` on `node`. Accesses the file system only
    /// to look up names.
    ///
    /// # Errors
    /// Returns an error for the first request that cannot be fulfilled.
    pub fn new(cli: &Cli, env: &Environment, node: &Node) -> anyhow::Result<LaunchPlan> {
        let found = cluster::infer(cli, env, node)?;
        let inputs = PlanInputs {
            cli,
            found: &found,
            env,
            node,
        };
        let mut plan = inputs.plan()?;
        numa::place(cli, env, node, &mut plan.ranks)?;
        if let (Some(task), Some(only)) = (&found.task, plan.ranks.first_mut()) {
            only.env.extend(slurm::variables(task, env));
        }
        let open_files = caveats::open_files(node.open_files, plan.nnodes, plan.ranks.len());
        let port = caveats::port(&plan, node.connection_ports);
        plan.notes
            .extend(open_files.into_iter().chain(port).map(Note::warning));
        Ok(plan)
    }
}

/// What the plan is made from.
#[derive(Clone, Copy)]
struct PlanInputs<'a> {
    cli: &'a Cli,
    /// What SLURM or Kubernetes says where no option does.
    found: &'a Inferred,
    env: &'a Environment,
    node: &'a Node,
}

/// How many ranks run, and the facts that decide it.
struct RankCount {
    /// Number of ranks on this node.
    nproc: usize,
    launch: LaunchSize,
    notes: Vec<Note>,
}

impl PlanInputs<'_> {
    fn plan(self) -> anyhow::Result<LaunchPlan> {
        let PlanInputs {
            cli,
            found,
            env,
            node,
        } = self;
        let nodes = Nodes::new(cli, found)?;
        let failure_policy = FailurePolicy::new(cli);
        let max_restarts = failure_policy.max_restarts(cli)?;
        let request = EvalRequest::of(cli, env, node)?;
        let count = self.rank_count(nodes, request.as_ref())?;
        caveats::refuse(cli)?;
        let task = found.task.as_ref();
        let first = task.map_or(0, |task| task.local_rank);
        // Such a task sees only its GPUs, of which the first is device 0 already.
        let has_own_devices = task.is_some_and(|task| task.has_own_devices);
        let is_virtual = cli.virtual_local_rank && !has_own_devices;
        let ranks = Ranks::new(cli, first, count.nproc, is_virtual)?;
        let logs = LogPlan::new(cli, env)?;
        let program = Program::new(cli, env, node)?;
        let serve = match cli.built_in() {
            Some("serve") => Some(ServePlan::new(&cli.args, count.nproc, count.launch.gpus)?),
            _ => None,
        };
        let eval = self.evaluation(request, count.launch)?;
        let (model_server, server_notes) = self.model_server(eval.as_ref())?;
        let MeetingPlan {
            run_id,
            store,
            rendezvous,
        } = MeetingPlan::new(cli, found, nodes, node)?;
        timeouts::check_monitor_interval(cli)?;
        let shutdown_timeout = timeouts::shutdown_timeout(cli, env, found.shutdown_timeout())?;
        let (signals, signal_notes) = SignalPlan::new(&cli.signals_to_handle, found.sender);
        let (variables, thread_note) = self.variables(count.nproc, eval.as_ref());
        let warnings = caveats::notes(cli).into_iter().chain(signal_notes);
        let eval_notes = eval.iter().flat_map(|eval| eval.notes.clone());
        let is_step = found.sender == Sender::SlurmToStep;
        let bound = is_step
            .then(|| slurm::bound(node.cpus, count.nproc))
            .flatten();
        let of_cluster = found.notes.iter().cloned().chain(bound);
        let notes = of_cluster
            .chain(warnings.map(Note::warning))
            .chain(thread_note.map(Note::info))
            .chain(eval_notes)
            .chain(server_notes)
            .chain(count.notes)
            .collect();
        Ok(LaunchPlan {
            nnodes: nodes.max,
            run_id,
            role: cli.role.clone(),
            failure_policy,
            max_restarts,
            shutdown_timeout,
            hang: HangPlan::new(cli, env)?,
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
            serve,
            eval,
        })
    }

    /// Decides the number of ranks: SLURM's tasks come first, then the placement of an evaluation,
    /// then `--nproc-per-node`, which is reduced if not all of them can have work.
    fn rank_count(self, nodes: Nodes, request: Option<&EvalRequest>) -> anyhow::Result<RankCount> {
        let PlanInputs {
            cli,
            found,
            env,
            node,
        } = self;
        let visible_devices = env.visible_devices();
        let given = match found.nproc {
            Some(nproc) => nproc,
            None => nproc::nproc(&cli.nproc_per_node, node, visible_devices.as_deref())?,
        };
        let task = found.task.as_ref();
        let launch = LaunchSize {
            nproc: cli.is_given("nproc-per-node").then_some(given),
            nodes: (nodes.min, nodes.max),
            tasks_per_node: Vec::new(),
            gpus: node.visible_gpus(visible_devices.as_deref()),
            is_virtual: cli.virtual_local_rank,
        };
        let launch = match task {
            Some(task) => launch.of_task(task),
            None => launch,
        };
        let placed = match request {
            Some(request) => request.nproc(&launch)?,
            None => None,
        };
        // SLURM decides the number of tasks.
        let Some(request) = request.filter(|_| task.is_none()) else {
            return Ok(RankCount {
                nproc: given,
                launch: LaunchSize {
                    nproc: launch.nproc.or(Some(given)),
                    ..launch
                },
                notes: Vec::new(),
            });
        };
        let (nproc, notes) = request.ranks(placed.unwrap_or(given), nodes.min, node)?;
        Ok(RankCount {
            nproc,
            launch: LaunchSize {
                nproc: Some(nproc),
                ..launch
            },
            notes,
        })
    }

    /// Checks the evaluation that is asked for.
    fn evaluation(
        self,
        request: Option<EvalRequest>,
        launch: LaunchSize,
    ) -> anyhow::Result<Option<EvalPlan>> {
        let Some(request) = request else {
            return Ok(None);
        };
        let mut memory = self.node.memory_of(self.env.visible_devices().as_deref());
        if self.found.task.is_some() {
            // Launchers of other tasks may already have started ranks on these GPUs; the planner
            // counts those anyway.
            memory.iter_mut().for_each(|memory| memory.used = 0);
        }
        Ok(Some(request.check(&launch, &memory)?))
    }

    /// Returns the model server of an evaluation, if there is one, and notes about it.
    fn model_server(
        self,
        eval: Option<&EvalPlan>,
    ) -> anyhow::Result<(Option<ServerPlan>, Vec<Note>)> {
        let task = self.found.task.as_ref();
        let local_rank = task.map(|task| task.local_rank);
        let planned = match eval {
            Some(eval) => ServerPlan::of(eval, self.env, local_rank)?,
            None => None,
        };
        let (server, notes) = planned.unzip();
        Ok((server, notes.unwrap_or_default()))
    }

    /// Returns the variables for every rank, and a note about the number of threads.
    fn variables(
        self,
        nproc: usize,
        eval: Option<&EvalPlan>,
    ) -> (BTreeMap<String, String>, Option<String>) {
        let (mut variables, thread_note) = variables::shared(self.env, nproc);
        let Some(eval) = eval else {
            return (variables, thread_note);
        };
        variables.insert(eval::GPUS_VARIABLE.to_owned(), eval.gpus.to_string());
        variables.extend(variables::of_style(self.cli));
        variables.extend(variables::of_waiting(self.env));
        // The default is right for the built-in program, so there is nothing to tune.
        (variables, None)
    }
}

#[cfg(test)]
mod tests;
