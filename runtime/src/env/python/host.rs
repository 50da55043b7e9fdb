//! Starts, watches and reaps the processes of one environment.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::env::python::args::PythonSettings;
use crate::env::python::child::MOST_STAGES;
use crate::env::python::fork_server::{self, ForkServer, ServerEvent};
use crate::env::python::hello::Hello;
use crate::env::python::processes::ProcessShare;
use crate::env::python::variables::{Placeholders, ProcessPlace, pci, variables};
use crate::env::{Answer, AnswerBatch, EnvError, EnvIndex};
use crate::python::{Module, Program, Ready, Variable, Worker};
use jobs::environments::StartMethod;

/// The worker's Python modules, in the order of their dependencies.
const MODULES: &[Module] = &[
    (
        "rrun_observation",
        include_str!("worker/rrun_observation.py"),
    ),
    ("rrun_mapping", include_str!("worker/rrun_mapping.py")),
    ("rrun_actions", include_str!("worker/rrun_actions.py")),
    ("rrun_simulator", include_str!("worker/rrun_simulator.py")),
    ("rrun_feedback", include_str!("worker/rrun_feedback.py")),
    ("rrun_values", include_str!("worker/rrun_values.py")),
    ("rrun_success", include_str!("worker/rrun_success.py")),
    ("rrun_worker", include_str!("worker/rrun_worker.py")),
];

/// An event of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    /// Number of the process.
    pub process: u64,
    /// The child that owns it; `None` if the process is being reaped.
    pub owner: Option<usize>,
    /// Its descriptor that is ready.
    pub ready: Ready,
}

const READY: [Ready; 3] = [Ready::Socket, Ready::Ended, Ready::Output];

/// The settings of an environment that do not change.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Settings of the job.
    pub settings: PythonSettings,
    /// Name of the job.
    pub job: String,
    /// Task instruction in place of the environment's own.
    pub language: Option<String>,
    /// Rank of this process.
    pub rank: usize,
    /// Time without an answer after which a process is given up.
    pub stall_timeout: Duration,
    /// Number of episodes after which a process is replaced.
    pub recycle_after: Option<u64>,
    /// Number of CPU cores of the machine.
    pub cores: usize,
    /// Number of simulator processes on the machine.
    pub processes: usize,
    /// EGL device of each GPU whose EGL index differs from its own number.
    pub egl_devices: BTreeMap<Option<u32>, u32>,
    /// Seed of the job's first episode.
    pub first_seed: u64,
}

impl HostSettings {
    /// Returns the number of stages that a start may have.
    fn stages(&self) -> usize {
        MOST_STAGES + self.settings.imports.len()
    }
}

/// Starts, watches and reaps processes.
pub struct Host {
    /// The settings that do not change.
    pub terms: HostSettings,
    /// Answers that were not taken yet.
    pub answers: AnswerBatch,
    /// Description sent by the first process; the others have to send the same.
    pub hello: Option<Arc<Hello>>,
    /// What became of a process at the reset with seed 0, which every start tries; the next ones try
    /// the seed of the job's first episode.
    pub probe_failure: Option<String>,
    /// X display of the processes.
    pub display: Option<String>,
    /// The reason why the environment cannot be created, until it is reported.
    pub failure: Option<EnvError>,
    epoll: Arc<OwnedFd>,
    owners: BTreeMap<u64, usize>,
    servers: Vec<ForkServer>,
    /// Killed processes that have not ended yet.
    dying: Vec<(u64, Worker)>,
    next_id: u64,
}

impl Host {
    /// Creates a host without processes.
    pub fn new(terms: HostSettings, epoll: Arc<OwnedFd>) -> Self {
        Self {
            terms,
            answers: AnswerBatch::new(),
            hello: None,
            probe_failure: None,
            display: None,
            failure: None,
            epoll,
            owners: BTreeMap::new(),
            servers: Vec::new(),
            dying: Vec::new(),
            next_id: 0,
        }
    }

    /// Keeps the answer of a copy until it is taken.
    pub fn give(&mut self, env: EnvIndex, answer: Answer) {
        self.answers.push((env, answer));
    }

    /// Starts a fork server for processes with the same variables, if there are two or more. One
    /// that cannot be started is done without.
    pub fn start_servers(&mut self, shares: &[ProcessShare]) {
        if self.terms.settings.start_method == StartMethod::Spawn {
            return;
        }
        let all: Vec<_> = shares
            .iter()
            .map(|share| self.variables(&share.envs, share.gpu))
            .collect();
        for (index, set) in all.iter().enumerate() {
            let is_first_of_several = !all[..index].contains(set) && all[index + 1..].contains(set);
            if is_first_of_several && let Err(err) = self.start_server(set.clone()) {
                tracing::debug!(target: "env", "no fork server: {err}");
            }
        }
    }

    fn start_server(&mut self, variables: Vec<Variable>) -> io::Result<()> {
        let settings = &self.terms.settings;
        let modules = [MODULES, &[fork_server::MODULE]].concat();
        let program = Program {
            python: &settings.python,
            // The label is longer than those of the processes, which are written over it.
            label: &format!(
                "rrun-env job={} rank={} fork server of the environments",
                self.terms.job, self.terms.rank
            ),
            variables: &variables,
            modules: &modules,
            config: json!({
                "environment": settings.environment,
                "imports": settings.imports,
            }),
            stages: self.terms.stages(),
        };
        let say = |line: &str| tracing::debug!(target: "env", "fork server: {line}");
        let mut worker = Worker::start(&program, None, Box::new(say))?;
        let id = self.next_id;
        worker.watch(&self.epoll, id * 4)?;
        self.next_id += 1;
        self.servers.push(ForkServer {
            id,
            worker,
            variables,
        });
        Ok(())
    }

    /// Handles an event of a fork server; `None` if the process is none.
    pub fn on_server(&mut self, process: u64, ready: Ready) -> Option<ServerEvent> {
        let is_it = |server: &ForkServer| server.id == process;
        let index = self.servers.iter().position(is_it)?;
        let event = self.servers[index].on(ready);
        if event == ServerEvent::Over {
            let server = self.servers.remove(index);
            self.bury(server.id, server.worker);
        }
        Some(event)
    }

    /// Returns the process that imports for those that wait for it.
    pub fn importing(&self) -> Option<&Worker> {
        let workers = self.servers.iter().map(|server| &server.worker);
        workers.into_iter().find(|worker| !worker.is_up())
    }

    /// Ends the fork servers, and with them the processes that they have forked.
    pub fn end_servers(&mut self) {
        while let Some(server) = self.servers.pop() {
            self.bury(server.id, server.worker);
        }
    }

    /// Starts the process of child `owner`; `None` if its fork server is not ready yet.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn start(
        &mut self,
        owner: usize,
        envs: &[EnvIndex],
        gpu: Option<u32>,
    ) -> io::Result<Option<(u64, Worker)>> {
        let first = envs.first().map_or(0, |env| env.0);
        let last = envs.last().map_or(0, |env| env.0);
        let variables = self.variables(envs, gpu);
        let server = self
            .servers
            .iter()
            .find(|server| server.variables == variables);
        if server.is_some_and(|server| !server.worker.is_up()) {
            return Ok(None);
        }
        let settings = &self.terms.settings;
        let mut program = Program {
            python: &settings.python,
            label: &format!(
                "rrun-env job={} rank={} envs={first}-{last}",
                self.terms.job, self.terms.rank
            ),
            variables: &variables,
            // A forked process has them already.
            modules: &[],
            config: self.config(envs, gpu),
            stages: self.terms.stages(),
        };
        let sink = || Box::new(move |line: &str| tracing::debug!(target: "env", first, "{line}"));
        let limit = Some(self.terms.stall_timeout);
        let fork = |server: &ForkServer| Worker::fork(&program, &server.worker, limit, sink()).ok();
        let mut worker = match server.and_then(fork) {
            Some(forked) => forked,
            None => {
                program.modules = MODULES;
                Worker::start(&program, limit, sink())?
            }
        };
        let id = self.next_id;
        worker.watch(&self.epoll, id * 4)?;
        self.next_id += 1;
        self.owners.insert(id, owner);
        Ok(Some((id, worker)))
    }

    /// Returns the environment variables of a process.
    fn variables(&self, envs: &[EnvIndex], gpu: Option<u32>) -> Vec<Variable> {
        let numbers = Placeholders {
            gpu,
            env: envs.first().map_or(0, |env| env.0),
            rank: self.terms.rank,
        };
        let given: Vec<_> = self
            .terms
            .settings
            .variables
            .iter()
            .map(|entry| numbers.fill_variable(entry))
            .collect();
        let place = ProcessPlace {
            gpu,
            egl_device: self.terms.egl_devices.get(&gpu).copied().or(gpu),
            pci: gpu.and_then(pci),
            display: self.display.clone(),
            cores: self.terms.cores,
            processes: self.terms.processes,
        };
        variables(&place, &given, |name| std::env::var_os(name).is_some())
    }

    /// Returns what the worker of these copies is made with.
    fn config(&self, envs: &[EnvIndex], gpu: Option<u32>) -> Value {
        let settings = &self.terms.settings;
        json!({
            "first_env": envs.first().map_or(0, |env| env.0),
            "num_envs": envs.len(),
            "gpu": gpu,
            "rank": self.terms.rank,
            "environment": settings.environment,
            "env_kwargs": settings.env_kwargs,
            "imports": settings.imports,
            "control_hz": settings.control_hz,
            "max_episode_steps": settings.max_episode_steps,
            "success": settings.success,
            "mapping": settings.mapping,
            "pass_episode": settings.pass_episode,
            "clip_actions": settings.clip_actions,
            "vector": settings.vector,
            "first_seed": self.terms.first_seed,
            "probe": self.probe_failure,
            "renders": settings.renders(),
        })
    }

    /// Decodes an event token.
    pub fn event(&self, token: u64) -> Option<ProcessEvent> {
        let process = token / 4;
        Some(ProcessEvent {
            process,
            owner: self.owners.get(&process).copied(),
            ready: *READY.get((token % 4) as usize)?,
        })
    }

    /// Kills a process and everything it started. The process is reaped when it has ended, which
    /// may take long if a driver hangs.
    pub fn bury(&mut self, id: u64, mut worker: Worker) {
        worker.kill();
        self.owners.remove(&id);
        if !worker.reap() {
            self.dying.push((id, worker));
        }
    }

    /// Reaps a killed process that has ended.
    pub fn reap(&mut self, id: u64) {
        self.dying
            .retain_mut(|(dying, worker)| *dying != id || !worker.reap());
    }

    /// Returns the killed processes that have not ended yet.
    pub fn dying(&mut self) -> impl Iterator<Item = Worker> {
        self.dying.drain(..).map(|(_, worker)| worker)
    }
}
