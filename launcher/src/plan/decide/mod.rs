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

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::cli::{Cli, Environment};
use crate::hang::plan::HangPlan;
use crate::kubernetes::Kubernetes;
use crate::node::Node;
use crate::plan::decide::eval::EvalRequest;
use crate::plan::decide::eval::seating::LaunchSize;
use crate::plan::decide::meeting::nodes::Nodes;
use crate::plan::decide::meeting::{MeetingPlan, conf, nodes};
use crate::plan::decide::program::Program;
use crate::plan::decide::ranks::{Ranks, nproc, numa, variables};
use crate::plan::eval::EvalPlan;
use crate::plan::event_log::EventLog;
use crate::plan::model_server::ServerPlan;
use crate::plan::serve::ServePlan;
use crate::plan::{FailurePolicy, LaunchPlan, LogPlan, SignalPlan};
use crate::say::note::Note;
use crate::slurm::{Slurm, SlurmTask};

impl LaunchPlan {
    /// Returns the plan for what `cli` asks for in `env` on `node`. Accesses the file system only
    /// to look up names.
    ///
    /// # Errors
    /// Returns an error for the first request that cannot be fulfilled.
    pub fn new(cli: &Cli, env: &Environment, node: &Node) -> anyhow::Result<LaunchPlan> {
        let slurm = Slurm::new(cli, env)?;
        let kubernetes = if slurm.is_in_job() {
            Kubernetes::unused(&slurm.cli)
        } else {
            Kubernetes::new(&slurm.cli, env, node)?
        };
        let inputs = PlanInputs {
            cli: &kubernetes.cli,
            task: slurm.task(),
            env,
            node,
        };
        let mut plan = inputs.plan()?;
        numa::place(&kubernetes.cli, env, node, &mut plan.ranks)?;
        slurm.complete(&mut plan, env, node);
        kubernetes.complete(&mut plan, env);
        let open_files = caveats::open_files(node.open_files, plan.nnodes, plan.ranks.len());
        let port = caveats::port(&plan, node.connection_ports);
        plan.notes
            .extend(open_files.into_iter().chain(port).map(Note::warning));
        Ok(plan)
    }
}

/// What the plan is made from, after the variables of SLURM or Kubernetes have been merged into the
/// options.
#[derive(Clone, Copy)]
struct PlanInputs<'a> {
    cli: &'a Cli,
    /// The place of the only rank, if SLURM has started it as a task.
    task: Option<&'a SlurmTask>,
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
        let PlanInputs { cli, env, node, .. } = self;
        let nodes = nodes::nodes(&cli.nnodes)?;
        let failure_policy = FailurePolicy::new(cli);
        let max_restarts = failure_policy.max_restarts(cli)?;
        let request = EvalRequest::of(cli, env, node)?;
        let count = self.rank_count(nodes, request.as_ref())?;
        let pairs = conf::pairs(&cli.rdzv_conf)?;
        caveats::refuse(cli)?;
        let first = self.task.map_or(0, |task| task.local_rank);
        let ranks = Ranks::new(cli, first, count.nproc)?;
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
        } = MeetingPlan::new(cli, nodes, &pairs, node)?;
        timeouts::check_monitor_interval(cli)?;
        let shutdown_timeout = timeouts::shutdown_timeout(cli, env)?;
        let (signals, signal_notes) = SignalPlan::new(&cli.signals_to_handle);
        let (variables, thread_note) = self.variables(count.nproc, eval.as_ref());
        let warnings = caveats::notes(cli).into_iter().chain(signal_notes);
        let eval_notes = eval.iter().flat_map(|eval| eval.notes.clone());
        let notes = warnings
            .map(Note::warning)
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

    fn visible_devices(&self) -> Option<Cow<'_, str>> {
        let list = self.env.get("CUDA_VISIBLE_DEVICES")?;
        Some(list.to_string_lossy())
    }

    /// Decides the number of ranks: SLURM's tasks come first, then the placement of an evaluation,
    /// then `--nproc-per-node`, which is reduced if not all of them can have work.
    fn rank_count(self, nodes: Nodes, request: Option<&EvalRequest>) -> anyhow::Result<RankCount> {
        let PlanInputs {
            cli, task, node, ..
        } = self;
        let visible_devices = self.visible_devices();
        let given = nproc::nproc(&cli.nproc_per_node, node, visible_devices.as_deref())?;
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
        let mut memory = self.node.memory_of(self.visible_devices().as_deref());
        if self.task.is_some() {
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
        let local_rank = self.task.map(|task| task.local_rank);
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
