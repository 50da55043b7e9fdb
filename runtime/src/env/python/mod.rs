//! Python environments: any gymnasium environment, in a separate process.
//!
//! ```text
//! loop ── send ──► Processes ── packets ──► python: rrun_worker.py, the simulator
//!      ◄─ take ──┘     │   ◄─── packets ────┘   │
//!                      └───── shared memory ────┘   actions in, state and images out
//! ```
//!
//! Two or more processes are forked by a process that has imported the environment (`host`).
//! A process holds one copy, several copies (`envs_per_process`), or a VectorEnv. Numbers are copied
//! out of shared memory at once, and images once, by whoever looks at them first, because the
//! process may write there at any moment ([`crate::python::memory`]). A process that dies, hangs or raises loses the episodes of its
//! copies ([`EnvError::Lost`]), which hear whether one of them is to blame, and the next reset
//! starts another. An invalid value ends one episode ([`EnvError::Episode`]), and the process goes
//! on.
//!
//! A mapping defines the names of the observations and the composition of the actions (`mapping`,
//! `worker/rrun_mapping.py`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use jobs::eval_args::Screen;
use jobs::job::Job;
use jobs::refusal::Refusal;
use rustix::event::Timespec;

use crate::env::{AnswerBatch, Command, EnvError, EnvIndex, EnvSpec, VectorEnv};
use processes::Processes;
use settings::PythonSettings;

mod child;
mod copy;
mod hello;
mod host;
mod memory;
mod message;
mod processes;
mod settings;
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
    let shares = shares(&config.gpus, settings.given.envs_per_process as usize);
    if shares.is_empty() {
        return Err(settings::refuse("num_envs", &0.into(), "expected at least 1").into());
    }
    let owners = shares.iter().enumerate();
    let owners = owners.flat_map(|(child, envs)| vec![child; envs.len()]);
    let (owners, ignored) = (owners.collect(), settings.ignored.clone());
    let ends_on_success = settings.given.end_on_success;
    let language = job.language_instruction.as_deref();
    let (processes, hello) = Processes::start(settings, config, shares)?;
    Ok(PythonEnv {
        spec: hello.spec(&job.environment, language, ends_on_success),
        steps_together: hello.together,
        ignored,
        notes: hello.notes.clone(),
        versions: hello.versions(),
        owners,
        processes,
    })
}

/// Groups neighbouring copies on the same GPU into processes, as far as the job allows.
fn shares(gpus: &[Option<u32>], envs_per_process: usize) -> Vec<Range<usize>> {
    let mut shares: Vec<Range<usize>> = Vec::new();
    for (env, gpu) in gpus.iter().enumerate() {
        match shares.last_mut() {
            Some(last) if gpus[last.start] == *gpu && last.len() < envs_per_process => {
                last.end = env + 1;
            }
            _ => shares.push(env..env + 1),
        }
    }
    shares
}

/// The copies of one Python environment.
pub struct PythonEnv {
    /// Names of `arena_env_args` fields without effect.
    pub ignored: Vec<String>,
    /// Messages for the user about assumptions and omissions.
    pub notes: Vec<String>,
    /// Versions of the interpreter and of the imported packages, by name.
    pub versions: BTreeMap<String, String>,
    spec: EnvSpec,
    steps_together: bool,
    /// Index of the process of each copy.
    owners: Vec<usize>,
    processes: Processes,
}

impl VectorEnv for PythonEnv {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn num_envs(&self) -> usize {
        self.owners.len()
    }

    fn company(&self, env: EnvIndex) -> Range<usize> {
        self.processes.children[self.owners[env.0]].envs.clone()
    }

    fn steps_together(&self) -> bool {
        self.steps_together
    }

    fn takes_offers(&self) -> bool {
        self.processes.host.takes_offers()
    }

    fn open_renderers(&mut self) -> Result<Vec<String>, EnvError> {
        // The simulators open their renderers themselves, at the first image.
        Ok(self
            .processes
            .host
            .config
            .egl_note
            .iter()
            .cloned()
            .collect())
    }

    fn send(&mut self, work: Vec<(EnvIndex, Command)>) {
        let Processes { host, children, .. } = &mut self.processes;
        let mut touched = Vec::new();
        for (env, command) in work {
            let owner = self.owners[env.0];
            children[owner].take(env, command, host);
            if touched.last() != Some(&owner) {
                touched.push(owner);
            }
        }
        touched
            .into_iter()
            .for_each(|owner| children[owner].flush(host));
    }

    fn ready(&self) -> BorrowedFd<'_> {
        self.processes.epoll.as_fd()
    }

    fn due(&self) -> Option<Instant> {
        self.processes.due()
    }

    fn take(&mut self) -> AnswerBatch {
        self.processes.turn(Some(Timespec::default()));
        std::mem::take(&mut self.processes.host.answers)
    }
}
