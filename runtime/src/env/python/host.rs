//! What the processes of one environment have in common: how they are started, watched and buried.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;
use serde_json::{Value, json};

use super::args::Settings;
use super::hello::Hello;
use super::process::Process;
use super::variables::{Numbers, ProcessPlace, pci, variables};
use crate::env::{Answers, EnvError, EnvIndex};

/// The worker's modules, in the order in which they need each other.
const MODULES: &[(&str, &str)] = &[
    ("rrun_observation", include_str!("worker/rrun_observation.py")),
    ("rrun_mapping", include_str!("worker/rrun_mapping.py")),
    ("rrun_actions", include_str!("worker/rrun_actions.py")),
    ("rrun_simulator", include_str!("worker/rrun_simulator.py")),
    ("rrun_feedback", include_str!("worker/rrun_feedback.py")),
    ("rrun_values", include_str!("worker/rrun_values.py")),
    ("rrun_success", include_str!("worker/rrun_success.py")),
    ("rrun_worker", include_str!("worker/rrun_worker.py")),
];

/// Which of a process's descriptors is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Something to receive.
    Socket,
    /// It has ended.
    Ended,
    /// It has written.
    Output,
}

const READY: [Ready; 3] = [Ready::Socket, Ready::Ended, Ready::Output];

/// What does not change while an environment lives.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Of the job.
    pub settings: Settings,
    /// The job's name.
    pub job: String,
    /// The task in other words than the environment's.
    pub language: Option<String>,
    /// This rank.
    pub rank: usize,
    /// Time without an answer after which a process is given up.
    pub stall_timeout: Duration,
    /// Episodes after which a process is replaced.
    pub recycle_after: Option<u64>,
    /// Cores of the machine and simulator processes on it.
    pub cores: usize,
    /// Simulator processes on the machine.
    pub processes: usize,
    /// EGL device of each GPU, where it is not that of the same number.
    pub egl_devices: BTreeMap<Option<u32>, u32>,
    /// Seed of the job's first episode.
    pub first_seed: u64,
}

/// Starts, watches and buries processes.
pub struct Host {
    /// What does not change.
    pub terms: Terms,
    /// Where answers go.
    pub answers: Answers,
    /// What the first process said; the others have to say the same.
    pub hello: Option<Arc<Hello>>,
    /// X display of the processes.
    pub display: Option<String>,
    /// Why the environment cannot be had, while it is made.
    pub failure: Option<EnvError>,
    /// Bytes of a packet, used again.
    pub buffer: Vec<u8>,
    epoll: Arc<OwnedFd>,
    owners: BTreeMap<u64, usize>,
    dying: Vec<Process>,
    next_id: u64,
}

impl Host {
    /// A host of no processes.
    pub fn new(terms: Terms, answers: Answers, epoll: Arc<OwnedFd>) -> Self {
        Self {
            terms,
            answers,
            hello: None,
            display: None,
            failure: None,
            buffer: Vec::new(),
            epoll,
            owners: BTreeMap::new(),
            dying: Vec::new(),
            next_id: 0,
        }
    }

    /// Starts the process of child `owner` and tells it what to make.
    pub fn start(&mut self, owner: usize, envs: &[EnvIndex], gpu: Option<u32>) -> io::Result<Process> {
        let (first, last) = (envs.first().map_or(0, |env| env.0), envs.last().map_or(0, |env| env.0));
        let rank = self.terms.rank;
        let numbers = |env: usize| Numbers { gpu, env, rank };
        let label = format!("rrun-env job={} rank={} envs={first}-{last}", self.terms.job, self.terms.rank);
        let settings = &self.terms.settings;
        let given: Vec<_> = settings.variables.iter().map(|entry| numbers(first).fill_variable(entry)).collect();
        let place = ProcessPlace {
            gpu,
            egl_device: self.terms.egl_devices.get(&gpu).copied().or(gpu),
            pci: gpu.and_then(pci),
            display: self.display.clone(),
            cores: self.terms.cores,
            processes: self.terms.processes,
        };
        let set = variables(&place, &given, |name| std::env::var_os(name).is_some());
        let process = Process::start(self.next_id, &settings.python, &label, &set)?;
        self.next_id += 1;
        if let Err(err) = self.introduce(&process, envs, &numbers) {
            self.bury(process);
            return Err(err);
        }
        self.owners.insert(process.id, owner);
        Ok(process)
    }

    /// Tells a process what it is to make, and watches it.
    fn introduce(&self, process: &Process, envs: &[EnvIndex], numbers: &impl Fn(usize) -> Numbers) -> io::Result<()> {
        let settings = &self.terms.settings;
        let kwargs = Value::from(settings.env_kwargs.clone());
        let config = json!({
            "modules": MODULES,
            "memory_fd": process.memfd.as_raw_fd(),
            "envs": envs.iter().map(|env| env.0).collect::<Vec<_>>(),
            "environment": settings.environment,
            "env_kwargs": envs.iter().map(|env| numbers(env.0).fill_value(&kwargs)).collect::<Vec<_>>(),
            "imports": settings.imports,
            "control_hz": settings.control_hz,
            "max_episode_steps": settings.max_episode_steps,
            "success": settings.success,
            "mapping": settings.mapping,
            "pass_episode": settings.pass_episode,
            "clip_actions": settings.clip_actions,
            "vector": settings.vector,
            "first_seed": self.terms.first_seed,
            "renders": settings.renders(),
        });
        match process.send(config.to_string().as_bytes()) {
            // It has ended already, which is an event of its own.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(err) => return Err(err.into()),
        }
        self.watch(&process.socket, process.id * 4)?;
        self.watch(&process.pidfd, process.id * 4 + 1)?;
        self.watch(&process.output, process.id * 4 + 2)
    }

    fn watch(&self, fd: impl std::os::fd::AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&*self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
    }

    /// Reports nothing of this descriptor any more: it is at its end, and would be ready for ever.
    pub fn ignore(&self, fd: impl std::os::fd::AsFd) {
        // One that is not watched needs no ignoring.
        epoll::delete(&*self.epoll, fd).ok();
    }

    /// Whose event this is: the process, the child that owns it (none if it is being buried), and what is ready.
    pub fn event(&self, token: u64) -> Option<(u64, Option<usize>, Ready)> {
        let ready = *READY.get((token % 4) as usize)?;
        Some((token / 4, self.owners.get(&(token / 4)).copied(), ready))
    }

    /// Kills a process and all that it started. It is reaped when it has ended, which may take its time where a driver
    /// hangs.
    pub fn bury(&mut self, mut process: Process) {
        process.kill();
        self.owners.remove(&process.id);
        self.ignore(&process.socket);
        self.ignore(&process.output);
        if process.reap().is_none() {
            self.dying.push(process);
        }
    }

    /// A process that is being buried has ended.
    pub fn reap(&mut self, id: u64) {
        self.dying.retain_mut(|process| process.id != id || process.reap().is_none());
    }

    /// Whether processes are left that were not reaped.
    pub fn mourns(&self) -> bool {
        !self.dying.is_empty()
    }
}
