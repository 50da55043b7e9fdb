//! [`LaunchPlan::new`]: makes all decisions of the plan.

use crate::cli::{Cli, Environment};
use crate::cluster::{self, Inferred, slurm};
use crate::hang::HangPlan;
use crate::node::Node;
use crate::plan::eval::{EvalPlan, EvalRequest};
use crate::plan::meeting::{MeetingPlan, Nodes};
use crate::plan::program::Program;
use crate::plan::ranks::{self, RankOptions};
use crate::plan::seating::LaunchSize;
use crate::plan::settings;
use crate::plan::{
    EventLog, FailurePolicy, LaunchPlan, LogPlan, Sender, ServePlan, ServerPlan, SignalPlan,
};
use crate::say::Note;

impl LaunchPlan {
    /// Returns the plan for what `cli` asks for in `env` on `node`. Accesses the file system only
    /// to look up names.
    ///
    /// # Errors
    /// Returns an error for a request that cannot be fulfilled. [`jobs::refusal::Refused::Usage`]
    /// is help of `eval` or `serve`, or what is wrong with their words.
    pub fn new(cli: &Cli, env: &Environment, node: &Node) -> anyhow::Result<LaunchPlan> {
        let found = &cluster::infer(cli, env, node)?;
        let inputs = Inputs {
            cli,
            env,
            node,
            found,
        };
        inputs.plan()
    }
}

/// What the plan is made from.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) cli: &'a Cli,
    pub(super) env: &'a Environment,
    pub(super) node: &'a Node,
    /// What SLURM or Kubernetes says where no option does.
    pub(super) found: &'a Inferred,
}

impl Inputs<'_> {
    fn plan(self) -> anyhow::Result<LaunchPlan> {
        let Inputs {
            cli,
            env,
            node,
            found,
        } = self;
        settings::refuse(cli)?;
        let events = EventLog::parse(&cli.event_log_handler)?;
        let nodes = Nodes::new(cli, found)?;
        let failure_policy = FailurePolicy::new(cli);
        let (signals, signal_notes) = SignalPlan::new(&cli.signals_to_handle, found.sender);
        let options = RankOptions::new(cli)?;
        let program = Program::new(cli, env, node)?;
        let size = LaunchSize::new(self, nodes)?;
        let (nproc, eval, eval_notes) = self.evaluation(&size)?;
        let serve = match cli.built_in() {
            Some("serve") => Some(ServePlan::new(&cli.args, nproc, size.gpus)?),
            _ => None,
        };
        let (model_server, server_notes) = ServerPlan::of(eval.as_ref(), self)?;
        let meeting = MeetingPlan::new(self, nodes)?;
        let logs = LogPlan::new(cli, env)?;
        let (variables, thread_note) = ranks::shared_variables(self, nproc, eval.as_ref());
        let is_step = found.sender == Sender::SlurmToStep;
        let cpus = is_step.then_some(node.cpus);
        let mut notes = found.notes.clone();
        notes.extend(cpus.and_then(|cpus| slurm::bound(cpus, nproc)));
        notes.extend(settings::notes(cli, options.want_files()));
        notes.extend(signal_notes.into_iter().chain(thread_note));
        notes.extend(eval_notes.into_iter().chain(server_notes));
        notes.extend(settings::open_files(node.open_files, nodes.max, nproc));
        notes.extend(settings::port(&meeting, node.connection_ports));
        Ok(LaunchPlan {
            nnodes: nodes.max,
            run_id: meeting.run_id,
            role: cli.role.clone(),
            failure_policy,
            max_restarts: failure_policy.max_restarts(cli)?,
            shutdown_timeout: settings::shutdown_timeout(cli, env, found.shutdown_timeout())?,
            hang: HangPlan::new(cli, env)?,
            store: meeting.store,
            rendezvous: meeting.rendezvous,
            signals,
            ranks: options.plan(self, nproc, &program, logs.disabled)?,
            logs,
            title: program.title,
            is_built_in: cli.is_built_in(),
            env: variables,
            open_files: node.open_files,
            events,
            reports_usage: cli.rusage,
            notes,
            model_server,
            serve,
            eval,
        })
    }

    /// Plans the evaluation that is asked for, if one is. Returns the number of ranks on this node,
    /// too: SLURM's tasks come first, then the placement of an evaluation, then `--nproc-per-node`,
    /// which is reduced if not all of them can have work.
    fn evaluation(self, size: &LaunchSize) -> anyhow::Result<(usize, Option<EvalPlan>, Vec<Note>)> {
        if self.cli.built_in() != Some("eval") {
            return Ok((size.usual, None, Vec::new()));
        }
        let request = EvalRequest::read(&self.cli.args, self.env)?;
        let seats = request.seat(size, self.node)?;
        let mut memory = self.node.memory_of(self.env.visible_devices().as_deref());
        let nproc = match self.found.task {
            Some(_) => {
                // Launchers of other tasks may already have started ranks on these GPUs; the
                // planner counts those anyway.
                memory.iter_mut().for_each(|memory| memory.used = 0);
                size.usual
            }
            None => seats.nproc,
        };
        let (eval, notes) = request.plan(size, seats, &memory, self.env)?;
        Ok((nproc, Some(eval), notes))
    }

    /// Returns the number of GPUs that CUDA shows on this node.
    pub(super) fn gpus(self) -> usize {
        let visible = self.env.visible_devices();
        self.node.visible_gpus(visible.as_deref())
    }
}
