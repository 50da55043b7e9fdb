//! Environments in Python: any gymnasium environment, each in a process of its own.
//!
//! ```text
//! loop ── send ──► bridge thread ── packets ──► python: rrun_worker.py, the simulator
//!      ◄─ Answers ─┘     │   ◄───── packets ────┘   │
//!                        └────── shared memory ─────┘   actions in, state and pictures out
//! ```
//!
//! A process holds one copy, or several (`envs_per_process`), or a VectorEnv. What it shows is copied out of its memory
//! once, by the kernel: it may write there at any moment. A process that dies, hangs or raises costs the episodes of its
//! copies ([`EnvError::Lost`]), and the next reset starts another. A value that cannot be right costs one episode
//! ([`EnvError::Episode`]), and the process lives on.
//!
//! What an observation is called, and what an action is made of, says a mapping (`mapping`, `worker/rrun_mapping.py`).

use std::collections::BTreeMap;
use std::time::Duration;

use jobs::eval_args::Screen;
use jobs::job::Job;

use crate::env::{Answers, Command, EnvError, EnvIndex, EnvSpec, Render, VectorEnv};
use args::Settings;
use bridge::{Handle, Request, Share};
use host::Terms;

mod args;
mod bridge;
mod child;
mod copy;
mod hello;
mod host;
mod last_lines;
mod layout;
mod mapping;
mod message;
pub(super) mod pre_exec;
mod process;
mod seen;
mod variables;

#[cfg(test)]
mod tests;

/// What a job does not say about its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonConfig {
    /// GPU of each copy, as `nvidia-smi` counts; as many copies are made.
    pub gpus: Vec<Option<u32>>,
    /// EGL device of the copies on a GPU; the device of the GPU's own number for one that is not named.
    pub egl_devices: BTreeMap<Option<u32>, u32>,
    /// What the user should know of these devices.
    pub egl_note: Option<String>,
    /// This rank, for messages and `{rank}`.
    pub rank: usize,
    /// Ranks on this machine, which share its cores.
    pub local_world_size: usize,
    /// Time without an answer after which a process is given up.
    pub stall_timeout: Duration,
    /// Episodes after which a process is replaced, unless the job says.
    pub recycle_after: Option<u64>,
    /// An own X display for jobs that do not name one.
    pub xvfb: Option<Screen>,
    /// Seed of the job's first episode.
    pub first_seed: u64,
}

impl PythonConfig {
    /// Copies without a GPU, in a rank that is alone.
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
/// [`EnvError::Argument`] for the first that is wrong or unknown.
pub fn check(job: &Job) -> Result<(), EnvError> {
    Settings::new(job).map(drop)
}

/// Starts the processes of a job's environment and returns when all are ready.
///
/// # Errors
/// As [`check`]; [`EnvError::Setup`] if a process does not start, or its environment does not fit the mapping.
pub fn make(job: &Job, config: PythonConfig, answers: Answers) -> Result<PythonEnv, EnvError> {
    let settings = Settings::new(job)?;
    let shares = shares(&config.gpus, settings.envs_per_process);
    if shares.is_empty() {
        let wanted = "at least 1 is needed".to_owned();
        return Err(EnvError::Argument { field: "num_envs".to_owned(), found: "0".to_owned(), wanted });
    }
    let terms = Terms {
        job: job.name.clone(),
        language: job.language_instruction.clone(),
        rank: config.rank,
        stall_timeout: config.stall_timeout,
        recycle_after: settings.recycle_after.or(config.recycle_after),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        processes: shares.len() * config.local_world_size.max(1),
        egl_devices: config.egl_devices,
        first_seed: config.first_seed,
        settings,
    };
    let (name, ignored) = (job.environment.clone(), terms.settings.ignored.clone());
    let ends_on_success = terms.settings.end_on_success;
    let (bridge, hello) = Handle::start(terms, shares, config.xvfb, answers)?;
    let spec = hello.spec(&name, job.language_instruction.as_deref(), ends_on_success);
    let (num_envs, notes) = (config.gpus.len(), hello.notes.clone());
    Ok(PythonEnv { spec, num_envs, ignored, notes, egl_note: config.egl_note, bridge })
}

/// Neighbouring copies on the same GPU share a process, as far as the job allows.
fn shares(gpus: &[Option<u32>], envs_per_process: usize) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for (env, gpu) in gpus.iter().enumerate() {
        match shares.last_mut() {
            Some(last) if last.gpu == *gpu && last.envs.len() < envs_per_process => last.envs.push(EnvIndex(env)),
            _ => shares.push(Share { envs: vec![EnvIndex(env)], gpu: *gpu }),
        }
    }
    shares
}

/// Copies of one Python environment.
pub struct PythonEnv {
    spec: EnvSpec,
    num_envs: usize,
    ignored: Vec<String>,
    notes: Vec<String>,
    egl_note: Option<String>,
    bridge: Handle,
}

impl PythonEnv {
    /// Fields of `arena_env_args` without effect.
    pub fn ignored_args(&self) -> &[String] {
        &self.ignored
    }

    /// What was taken for granted, or left out.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl VectorEnv for PythonEnv {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn num_envs(&self) -> usize {
        self.num_envs
    }

    fn open_renderers(&mut self) -> Result<Vec<String>, EnvError> {
        // The simulators open theirs themselves, at the first picture.
        Ok(self.egl_note.iter().cloned().collect())
    }

    fn send(&mut self, work: Vec<(EnvIndex, Command)>, render: Render) {
        self.bridge.ask(Request::Work(work, render));
    }
}
