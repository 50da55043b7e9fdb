//! Python environments: any gymnasium environment, in a separate process.
//!
//! ```text
//! loop ── send ──► Processes ── packets ──► python: rrun_worker.py, the simulator
//!      ◄─ take ──┘     │   ◄─── packets ────┘   │
//!                      └───── shared memory ────┘   actions in, state and images out
//! ```
//!
//! Two or more processes are forked by a process that has imported the environment (`fork_server`).
//! A process holds one copy, several copies (`envs_per_process`), or a VectorEnv. Each observation
//! is copied out of shared memory once, because the process may write there at any moment
//! ([`crate::python::memory`]). A process that dies, hangs or raises loses the episodes of its
//! copies ([`EnvError::Lost`]), which hear whether one of them is to blame, and the next reset
//! starts another. An invalid value ends one episode ([`EnvError::Episode`]), and the process goes
//! on.
//!
//! A mapping defines the names of the observations and the composition of the actions (`mapping`,
//! `worker/rrun_mapping.py`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use jobs::eval_args::Screen;
use jobs::job::Job;
use jobs::refusal::Refusal;

use crate::env::{AnswerBatch, Command, EnvError, EnvIndex, EnvSpec, VectorEnv};
use args::PythonSettings;
use host::HostSettings;
use processes::{ProcessShare, Processes};

mod args;
mod child;
mod copy;
mod fork_server;
mod hello;
mod host;
mod layout;
mod mapping;
mod message;
mod observation;
mod processes;
mod variables;

#[cfg(test)]
mod tests;

/// Configuration of the processes that does not come from the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonConfig {
    /// GPU of each copy, as `nvidia-smi` counts. The length is the number of copies.
    pub gpus: Vec<Option<u32>>,
    /// EGL device of the copies on a GPU; a GPU that is not listed has the EGL device of its own
    /// number.
    pub egl_devices: BTreeMap<Option<u32>, u32>,
    /// Message for the user about these devices.
    pub egl_note: Option<String>,
    /// Rank of this process, for messages and `{rank}`.
    pub rank: usize,
    /// Number of ranks on this machine, which share its cores.
    pub local_world_size: usize,
    /// Time without an answer after which a process is given up.
    pub stall_timeout: Duration,
    /// Number of episodes after which a process is replaced, unless the job sets it.
    pub recycle_after: Option<u64>,
    /// Screen of an X display that is started for jobs that do not name one.
    pub xvfb: Option<Screen>,
    /// Seed of the job's first episode.
    pub first_seed: u64,
}

impl PythonConfig {
    /// Returns the configuration of copies without a GPU, in a single rank.
    pub fn new(num_envs: usize) -> Self {
        Self {
            gpus: vec![None; num_envs],
            egl_devices: BTreeMap::new(),
            egl_note: None,
            rank: 0,
            local_world_size: 1,
            stall_timeout: Duration::from_secs(300),
            recycle_after: None,
            xvfb: None,
            first_seed: 0,
        }
    }
}

/// Checks a job's arguments without starting anything.
///
/// # Errors
/// Returns a [`Refusal`] for the first argument that is wrong or unknown.
pub fn check(job: &Job) -> Result<(), Refusal> {
    PythonSettings::new(job).map(drop)
}

/// Starts the processes of a job's environment and returns when all are ready.
///
/// # Errors
/// Returns the errors of [`check`], and [`EnvError::Setup`] if a process does not start or its
/// environment does not fit the mapping.
pub fn make(job: &Job, config: PythonConfig) -> Result<PythonEnv, EnvError> {
    let settings = PythonSettings::new(job)?;
    let shares = shares(&config.gpus, settings.envs_per_process);
    if shares.is_empty() {
        return Err(args::refuse("num_envs", &0.into(), "expected at least 1").into());
    }
    let recycle_after = settings.recycle_after.or(config.recycle_after);
    let terms = HostSettings {
        job: job.name.clone(),
        language: job.language_instruction.clone(),
        rank: config.rank,
        stall_timeout: config.stall_timeout,
        recycle_after,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        processes: shares.len() * config.local_world_size.max(1),
        egl_devices: config.egl_devices,
        first_seed: config.first_seed,
        settings,
    };
    let (name, ignored) = (job.environment.clone(), terms.settings.ignored.clone());
    let ends_on_success = terms.settings.end_on_success;
    let companies = shares.iter().flat_map(|share| {
        let company = share.envs[0].0..share.envs[0].0 + share.envs.len();
        vec![company; share.envs.len()]
    });
    let companies = companies.collect();
    let (processes, hello) = Processes::start(terms, &shares, config.xvfb)?;
    let spec = hello.spec(&name, job.language_instruction.as_deref(), ends_on_success);
    let takes_offers = hello.takes_offers(recycle_after);
    let steps_together = hello.together;
    let notes = hello.notes.clone();
    let versions = hello.versions();
    Ok(PythonEnv {
        spec,
        companies,
        steps_together,
        takes_offers,
        ignored,
        notes,
        versions,
        egl_note: config.egl_note,
        processes,
    })
}

/// Groups neighbouring copies on the same GPU into processes, as far as the job allows.
fn shares(gpus: &[Option<u32>], envs_per_process: usize) -> Vec<ProcessShare> {
    let mut shares: Vec<ProcessShare> = Vec::new();
    for (env, gpu) in gpus.iter().enumerate() {
        match shares.last_mut() {
            Some(last) if last.gpu == *gpu && last.envs.len() < envs_per_process => {
                last.envs.push(EnvIndex(env))
            }
            _ => shares.push(ProcessShare {
                envs: vec![EnvIndex(env)],
                gpu: *gpu,
            }),
        }
    }
    shares
}

/// The copies of one Python environment.
pub struct PythonEnv {
    spec: EnvSpec,
    /// For each copy, those that share its process.
    companies: Vec<Range<usize>>,
    steps_together: bool,
    takes_offers: bool,
    ignored: Vec<String>,
    notes: Vec<String>,
    versions: BTreeMap<String, String>,
    egl_note: Option<String>,
    processes: Processes,
}

impl PythonEnv {
    /// Returns the names of `arena_env_args` fields without effect.
    pub fn ignored_args(&self) -> &[String] {
        &self.ignored
    }

    /// Returns messages for the user about assumptions and omissions.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the versions of the interpreter and of the imported packages, by name.
    pub fn versions(&self) -> &BTreeMap<String, String> {
        &self.versions
    }
}

impl VectorEnv for PythonEnv {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn num_envs(&self) -> usize {
        self.companies.len()
    }

    fn company(&self, env: EnvIndex) -> Range<usize> {
        self.companies[env.0].clone()
    }

    fn steps_together(&self) -> bool {
        self.steps_together
    }

    fn takes_offers(&self) -> bool {
        self.takes_offers
    }

    fn open_renderers(&mut self) -> Result<Vec<String>, EnvError> {
        // The simulators open their renderers themselves, at the first image.
        Ok(self.egl_note.iter().cloned().collect())
    }

    fn send(&mut self, work: Vec<(EnvIndex, Command)>) {
        self.processes.send(work);
    }

    fn ready(&self) -> BorrowedFd<'_> {
        self.processes.ready()
    }

    fn due(&self) -> Option<Instant> {
        self.processes.due()
    }

    fn take(&mut self) -> AnswerBatch {
        self.processes.take()
    }
}
