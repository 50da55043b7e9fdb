//! Starts the processes of one environment, and reaps those that were killed.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use jobs::environments::StartMethod;
use jobs::eval_args::Screen;
use serde_json::{Value, json};

use crate::env::display::{START_LIMIT, VirtualDisplay};
use crate::env::python::PythonConfig;
use crate::env::python::hello::Hello;
use crate::env::python::settings::PythonSettings;
use crate::env::python::variables::{ProcessPlace, pci, variables};
use crate::env::{AnswerBatch, EnvError};
use crate::python::{Module, Program, Variable, Worker};

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
/// The main module of a fork server.
const FORK_SERVER: Module = (
    "rrun_fork_server",
    include_str!("worker/rrun_fork_server.py"),
);
/// Maximum number of start stages, beside one for each module that the job imports
/// (`rrun_worker.py` has four). Each stage extends the start by up to `--stall-timeout`, so the
/// number must be limited for a start that never ends.
const MOST_STAGES: usize = 16;
/// Screen of an X display if the job gives no size.
const SCREEN: Screen = Screen {
    width: 1024,
    height: 768,
    depth: 24,
};

/// What the processes of an environment have in common.
pub struct Host {
    pub settings: PythonSettings,
    pub config: PythonConfig,
    /// Answers that were not taken yet.
    pub answers: AnswerBatch,
    /// Description sent by the first process; the others have to send the same.
    pub hello: Option<Arc<Hello>>,
    /// What became of a process at the reset with seed 0, which every start tries; the next ones try
    /// the seed of the job's first episode.
    pub probe_failure: Option<String>,
    /// The reason why the environment cannot be created, until it is reported.
    pub failure: Option<EnvError>,
    /// The fork servers; their tokens follow those of the processes.
    pub servers: Vec<ForkServer>,
    /// Killed processes that have not ended yet.
    pub dying: Vec<Worker>,
    display: Option<VirtualDisplay>,
    epoll: Arc<OwnedFd>,
    /// Copies of each process.
    shares: Vec<Range<usize>>,
}

/// A Python process that has imported what an environment needs, and forks the processes with the
/// copies (`worker/rrun_fork_server.py`).
///
/// ```text
/// start ──stages──► importing ──hello──► forks whenever it is asked
///                       └── refused, raised, exited ──► gone: processes are started directly
/// ```
/// It decides itself whether it may be forked. What is wrong with the imports is reported by the
/// processes that are started directly then.
pub struct ForkServer {
    /// Its process, unless it is gone.
    pub worker: Option<Worker>,
    /// The environment variables of the processes that it forks.
    variables: Vec<Variable>,
}

impl Host {
    /// Starts the X display and the fork servers.
    ///
    /// # Errors
    /// Returns [`EnvError::Setup`] if there is no display.
    pub fn new(
        settings: PythonSettings,
        config: PythonConfig,
        epoll: Arc<OwnedFd>,
        shares: Vec<Range<usize>>,
    ) -> Result<Self, EnvError> {
        let screen = match (settings.given.display.as_deref(), config.place.xvfb) {
            (None | Some("none"), screen) => screen,
            (Some("auto"), screen) => Some(screen.unwrap_or(SCREEN)),
            _ => None,
        };
        let start = |screen| VirtualDisplay::start(Path::new("Xvfb"), screen, START_LIMIT);
        let display = screen.map(start).transpose().map_err(EnvError::Setup)?;
        let mut host = Self {
            settings,
            config,
            answers: AnswerBatch::new(),
            hello: None,
            probe_failure: None,
            failure: None,
            servers: Vec::new(),
            dying: Vec::new(),
            display,
            epoll,
            shares,
        };
        host.start_servers();
        Ok(host)
    }

    /// Starts a fork server for processes with the same variables, if there are two or more. One
    /// that cannot be started is done without.
    fn start_servers(&mut self) {
        if self.settings.given.start_method == StartMethod::Spawn {
            return;
        }
        let shares = self.shares.iter();
        let all: Vec<_> = shares.map(|envs| self.variables(envs)).collect();
        for (index, set) in all.iter().enumerate() {
            let is_first_of_several = !all[..index].contains(set) && all[index + 1..].contains(set);
            if is_first_of_several && let Err(err) = self.start_server(set.clone()) {
                tracing::debug!(target: "env", "no fork server: {err}");
            }
        }
    }

    fn start_server(&mut self, variables: Vec<Variable>) -> io::Result<()> {
        let (job, rank) = (&self.settings.job.name, self.config.place.rank);
        let program = Program {
            python: &self.settings.python,
            // The label is longer than those of the processes, which are written over it.
            label: &format!("rrun-env job={job} rank={rank} fork server of the environments"),
            variables: &variables,
            modules: &[MODULES, &[FORK_SERVER]].concat(),
            config: json!({
                "environment": self.settings.job.environment,
                "imports": self.settings.imports,
            }),
            stages: self.stages(),
            limit: Some(self.config.place.stall_timeout),
        };
        let say = |line: &str| tracing::debug!(target: "env", "fork server: {line}");
        let worker = Worker::start(&program, None, Box::new(say))?;
        let index = self.shares.len() + self.servers.len();
        worker.watch(&self.epoll, index as u64)?;
        self.servers.push(ForkServer {
            worker: Some(worker),
            variables,
        });
        Ok(())
    }

    fn stages(&self) -> usize {
        MOST_STAGES + self.settings.imports.len()
    }

    /// Starts a process; `None` if its fork server is not ready yet.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn start(&self, index: usize) -> io::Result<Option<Worker>> {
        let envs = &self.shares[index];
        let (first, last) = (envs.start, envs.end - 1);
        let variables = self.variables(envs);
        let server = self.servers.iter().find(|it| it.variables == variables);
        let server = server.and_then(|server| server.worker.as_ref());
        if server.is_some_and(|server| !server.is_up()) {
            return Ok(None);
        }
        let (job, rank) = (&self.settings.job.name, self.config.place.rank);
        let mut program = Program {
            python: &self.settings.python,
            label: &format!("rrun-env job={job} rank={rank} envs={first}-{last}"),
            variables: &variables,
            // A forked process has them already.
            modules: &[],
            config: self.config(envs),
            stages: self.stages(),
            limit: Some(self.config.place.stall_timeout),
        };
        let sink = || Box::new(move |line: &str| tracing::debug!(target: "env", first, "{line}"));
        let forked = server.and_then(|it| Worker::start(&program, Some(it), sink()).ok());
        let worker = match forked {
            Some(forked) => forked,
            None => {
                program.modules = MODULES;
                Worker::start(&program, None, sink())?
            }
        };
        worker.watch(&self.epoll, index as u64)?;
        Ok(Some(worker))
    }

    /// Returns the environment variables of a process.
    fn variables(&self, envs: &Range<usize>) -> Vec<Variable> {
        let PythonConfig { place, egl, .. } = &self.config;
        let gpu = place.number(envs.start);
        let own = self.settings.given.display.as_deref();
        let display = self.display.as_ref().map(VirtualDisplay::name);
        let place = ProcessPlace {
            gpu,
            env: envs.start,
            rank: place.rank,
            egl_device: egl.devices.get(&gpu).copied().or(gpu),
            pci: gpu.and_then(pci),
            display: display
                .or(own.filter(|name| *name != "none"))
                .map(str::to_owned),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processes: self.shares.len() * place.local_world_size.max(1),
        };
        let given = &self.settings.variables;
        variables(&place, given, |name| std::env::var_os(name).is_some())
    }

    /// Returns what the worker of these copies is made with.
    fn config(&self, envs: &Range<usize>) -> Value {
        let (settings, given) = (&self.settings, &self.settings.given);
        json!({
            "first_env": envs.start,
            "num_envs": envs.len(),
            "gpu": self.config.place.number(envs.start),
            "rank": self.config.place.rank,
            "environment": settings.job.environment,
            "env_kwargs": given.env_kwargs.clone().unwrap_or_default(),
            "imports": settings.imports,
            "control_hz": given.control_hz,
            "max_episode_steps": given.max_episode_steps,
            "success": given.success,
            "mapping": settings.mapping,
            "pass_episode": given.pass_episode,
            "clip_actions": given.clip_actions,
            "vector": given.vector,
            "first_seed": self.config.first_seed,
            "probe": self.probe_failure,
            "renders": settings.renders(),
        })
    }

    /// Returns the number of episodes after which a process is replaced.
    pub fn recycle_after(&self) -> Option<u64> {
        let own = self.settings.given.recycle_after.map(u64::from);
        own.or(self.config.place.recycle_after)
    }

    /// Returns a sentence about a process that is lost, with what it was doing.
    pub fn told(&self, reason: &str, doing: &str) -> String {
        let (rank, job) = (self.config.place.rank, &self.settings.job.name);
        format!("the simulator {reason}; {doing}; rank {rank}, job `{job}`")
    }

    /// Notes why the environment cannot be created, with the last lines of a process.
    pub fn fail(&mut self, reason: &str, lines: &[String]) {
        let last = &lines[lines.len().saturating_sub(20)..];
        let text = last
            .iter()
            .fold(reason.to_owned(), |text, line| text + "\n    " + line);
        self.failure.get_or_insert(EnvError::Setup(text));
    }

    /// Kills a process and everything it started. The process is reaped when it has ended, which
    /// may take long if a driver hangs.
    pub fn bury(&mut self, mut worker: Worker) {
        worker.kill();
        if !worker.reap() {
            self.dying.push(worker);
        }
    }

    /// Ends a fork server, and with it the processes that it has forked.
    pub fn bury_server(&mut self, index: usize) {
        if let Some(worker) = self.servers[index].worker.take() {
            self.bury(worker);
        }
    }
}
