//! Starts, watches and reaps the processes of one environment.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use serde_json::json;

use crate::clock::now;
use crate::env::python::args::PythonSettings;
use crate::env::python::bridge::ProcessShare;
use crate::env::python::child::MOST_STAGES;
use crate::env::python::fork_server::{self, ForkServer, ServerEvent};
use crate::env::python::hello::Hello;
use crate::env::python::process::PythonProcess;
use crate::env::python::rounds::Rounds;
use crate::env::python::variables::{Placeholders, ProcessPlace, Variable, pci, variables};
use crate::env::{Answer, AnswerBatch, Answers, EnvError, EnvIndex};
use jobs::environments::StartMethod;

/// The worker's Python modules, in the order of their dependencies.
const MODULES: &[(&str, &str)] = &[
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

/// The descriptor of a process that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyDescriptor {
    /// The socket has a packet.
    Socket,
    /// The process has ended, or the PID of a forked one is there.
    Ended,
    /// The process has written output.
    Output,
}

/// An event of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    /// Number of the process.
    pub process: u64,
    /// The child that owns it; `None` if the process is being reaped.
    pub owner: Option<usize>,
    /// Its descriptor that is ready.
    pub ready: ReadyDescriptor,
}

const READY: [ReadyDescriptor; 3] = [
    ReadyDescriptor::Socket,
    ReadyDescriptor::Ended,
    ReadyDescriptor::Output,
];

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

/// Starts, watches and reaps processes.
pub struct Host {
    /// The settings that do not change.
    pub terms: HostSettings,
    /// Destination of the answers.
    answers: Answers,
    /// Answers that wait for those of the same round.
    rounds: Rounds,
    /// Description sent by the first process; the others have to send the same.
    pub hello: Option<Arc<Hello>>,
    /// What became of a process at the reset with seed 0, which every start tries; the next ones try
    /// the seed of the job's first episode.
    pub probe_failure: Option<String>,
    /// X display of the processes.
    pub display: Option<String>,
    /// The reason why the environment cannot be created, until it is reported.
    pub failure: Option<EnvError>,
    /// Buffer for packets, which is reused.
    pub buffer: Vec<u8>,
    epoll: Arc<OwnedFd>,
    owners: BTreeMap<u64, usize>,
    servers: Vec<ForkServer>,
    dying: Vec<PythonProcess>,
    next_id: u64,
}

impl Host {
    /// Creates a host without processes.
    pub fn new(terms: HostSettings, answers: Answers, epoll: Arc<OwnedFd>) -> Self {
        Self {
            terms,
            answers,
            rounds: Rounds::default(),
            hello: None,
            probe_failure: None,
            display: None,
            failure: None,
            buffer: Vec::new(),
            epoll,
            owners: BTreeMap::new(),
            servers: Vec::new(),
            dying: Vec::new(),
            next_id: 0,
        }
    }

    /// Takes note of commands that were sent together, whose answers are given together.
    pub fn begin_round(&mut self, envs: impl IntoIterator<Item = EnvIndex>) {
        self.rounds.begin(envs);
    }

    /// Gives the answer of a copy to the loop, with the others of its round.
    pub fn give(&mut self, env: EnvIndex, answer: Answer) {
        let batch = self.rounds.on(env, answer, now());
        self.give_all(batch);
    }

    /// Returns when [`Host::give_overdue`] has to be called.
    pub fn answers_due(&self) -> Option<Instant> {
        self.rounds.due()
    }

    /// Gives the answers that cannot wait for others any longer.
    pub fn give_overdue(&mut self) {
        let batch = self.rounds.overdue(now());
        self.give_all(batch);
    }

    fn give_all(&self, batch: AnswerBatch) {
        if !batch.is_empty() {
            self.answers.give_all(batch);
        }
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
        // The label is longer than those of the processes, which are written over it.
        let label = format!(
            "rrun-env job={} rank={} fork server of the environments",
            self.terms.job, self.terms.rank
        );
        let modules: Vec<_> = MODULES
            .iter()
            .copied()
            .chain([fork_server::MODULE])
            .collect();
        let config = json!({
            "modules": modules,
            "environment": settings.environment,
            "imports": settings.imports,
        });
        let stages = MOST_STAGES + settings.imports.len();
        let id = self.next_id;
        let server = ForkServer::start(id, &settings.python, &label, variables, config, stages)?;
        self.next_id += 1;
        if let Err(err) = self.watch_process(&server.process) {
            self.bury(server.process);
            return Err(err);
        }
        self.servers.push(server);
        Ok(())
    }

    /// Handles an event of a fork server; `None` if the process is none.
    pub fn on_server(&mut self, process: u64, ready: ReadyDescriptor) -> Option<ServerEvent> {
        let is_it = |server: &ForkServer| server.process.id == process;
        let index = self.servers.iter().position(is_it)?;
        let server = &mut self.servers[index];
        let event = server.on(ready, &mut self.buffer);
        let (lines, more) = server.process.listen();
        for line in lines {
            tracing::debug!(target: "env", "fork server: {line}");
        }
        if let ServerEvent::Over(reason) = &event {
            tracing::debug!(target: "env", "the fork server is not used: {reason}");
            let server = self.servers.remove(index);
            self.bury(server.process);
        } else if !more {
            self.ignore(&self.servers[index].process.output);
        }
        Some(event)
    }

    /// Returns the process that imports for those that wait for it.
    pub fn importing(&self) -> Option<&PythonProcess> {
        let server = self.servers.iter().find(|server| !server.is_ready)?;
        Some(&server.process)
    }

    /// Ends the fork servers, and with them the processes that they have forked.
    pub fn end_servers(&mut self) {
        while let Some(server) = self.servers.pop() {
            self.bury(server.process);
        }
    }

    /// Starts the process of child `owner` and sends it its configuration; `None` if its fork
    /// server is not ready yet.
    pub fn start(
        &mut self,
        owner: usize,
        envs: &[EnvIndex],
        gpu: Option<u32>,
    ) -> io::Result<Option<PythonProcess>> {
        let (first, last) = (
            envs.first().map_or(0, |env| env.0),
            envs.last().map_or(0, |env| env.0),
        );
        let label = format!(
            "rrun-env job={} rank={} envs={first}-{last}",
            self.terms.job, self.terms.rank
        );
        let set = self.variables(envs, gpu);
        let (id, python) = (self.next_id, &self.terms.settings.python);
        let server = self.servers.iter().find(|server| server.variables == set);
        let forked = match server {
            Some(server) if !server.is_ready => return Ok(None),
            Some(server) => PythonProcess::fork(id, &server.process, &label).ok(),
            None => None,
        };
        let modules = if forked.is_some() { &[] } else { MODULES };
        let process = match forked {
            Some(process) => process,
            None => PythonProcess::start(id, python, &label, &set)?,
        };
        self.next_id += 1;
        if let Err(err) = self.introduce(&process, modules, envs, gpu) {
            self.bury(process);
            return Err(err);
        }
        self.owners.insert(process.id, owner);
        Ok(Some(process))
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

    /// Sends a process its configuration, and watches its descriptors.
    fn introduce(
        &self,
        process: &PythonProcess,
        modules: &[(&str, &str)],
        envs: &[EnvIndex],
        gpu: Option<u32>,
    ) -> io::Result<()> {
        let settings = &self.terms.settings;
        let config = json!({
            "modules": modules,
            "memory_fd": process.memfd.as_raw_fd(),
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
        });
        match process.send(config.to_string().as_bytes()) {
            // The process has ended already, which arrives as an event.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(err) => return Err(err.into()),
        }
        self.watch_process(process)
    }

    fn watch_process(&self, process: &PythonProcess) -> io::Result<()> {
        self.watch(&process.socket, process.id * 4)?;
        self.watch(&process.exit, process.id * 4 + 1)?;
        self.watch(&process.output, process.id * 4 + 2)
    }

    fn watch(&self, fd: impl std::os::fd::AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(
            &*self.epoll,
            fd,
            epoll::EventData::new_u64(token),
            epoll::EventFlags::IN,
        )?)
    }

    /// Stops watching a descriptor that is at its end and would be ready for ever.
    pub fn ignore(&self, fd: impl std::os::fd::AsFd) {
        // An error means that the descriptor was not watched.
        epoll::delete(&*self.epoll, fd).ok();
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
    pub fn bury(&mut self, mut process: PythonProcess) {
        process.kill();
        self.owners.remove(&process.id);
        self.ignore(&process.socket);
        self.ignore(&process.output);
        if !process.reap() {
            self.dying.push(process);
        }
    }

    /// Reaps a killed process that has ended.
    pub fn reap(&mut self, id: u64) {
        self.dying
            .retain_mut(|process| process.id != id || !process.reap());
    }

    /// Returns whether any process has not been reaped yet.
    pub fn mourns(&self) -> bool {
        !self.dying.is_empty()
    }
}
