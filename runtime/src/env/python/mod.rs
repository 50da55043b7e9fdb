//! Python environments: any gymnasium environment, in a separate process.
//!
//! ```text
//! loop ── send ──► Processes ── packets ──► python: rrun_worker.py, the simulator
//!      ◄─ take ──┘     │   ◄─── packets ────┘   │
//!                      └───── shared memory ────┘   actions in, state and images out
//! ```
//!
//! Two or more processes are forked by a process that has imported the environment (`host`). A
//! process holds one copy, several copies (`envs_per_process`), or a VectorEnv. Numbers are copied
//! out of shared memory at once, and images once, by whoever looks at them first, because the
//! process may write there at any moment ([`crate::python::memory`]). A process that dies, hangs or
//! raises loses the episodes of its copies ([`EnvError::Lost`]), which hear whether one of them is
//! to blame, and the next reset starts another. An invalid value ends one episode
//! ([`EnvError::Episode`]), and the process goes on.
//!
//! A mapping defines the names of the observations and the composition of the actions (`mapping`,
//! `worker/rrun_mapping.py`).

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use jobs::job::Job;
use jobs::refusal::Refusal;
use rustix::event::{Timespec, epoll};

use crate::clock::{now, timespec};
use crate::env::python::child::Child;
use crate::env::python::hello::Hello;
use crate::env::python::host::Host;
use crate::env::python::settings::PythonSettings;
use crate::env::registry::EglAdvice;
use crate::env::{
    AnswerBatch, Command, EnvError, EnvIndex, EnvPlacement, EnvSpec, NewEnv, VectorEnv,
};
use crate::python::{Said, Worker, close_all};

mod child;
mod copy;
mod hello;
mod host;
mod memory;
mod message;
mod settings;
mod variables;

#[cfg(test)]
mod tests;

/// Configuration of the processes that does not come from the job.
#[derive(Debug)]
pub struct PythonConfig {
    /// Where the copies run.
    pub place: EnvPlacement,
    /// The EGL devices of their GPUs.
    pub egl: EglAdvice,
    /// Seed of the job's first episode.
    pub first_seed: u64,
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
    let shares = shares(&config.place, settings.given.envs_per_process as usize);
    if shares.is_empty() {
        return Err(settings::refuse("num_envs", &0.into(), "expected at least 1").into());
    }
    let owners = shares.iter().enumerate();
    let owners = owners.flat_map(|(child, envs)| vec![child; envs.len()]);
    let owners = owners.collect();
    let ends_on_success = settings.given.end_on_success;
    let language = job.language_instruction.as_deref();
    let (processes, hello) = Processes::start(settings, config, shares)?;
    Ok(PythonEnv {
        spec: hello.spec(&job.environment, language, ends_on_success),
        hello,
        owners,
        processes,
    })
}

/// Groups neighbouring copies on the same GPU into processes, as far as the job allows.
fn shares(place: &EnvPlacement, envs_per_process: usize) -> Vec<Range<usize>> {
    let mut shares: Vec<Range<usize>> = Vec::new();
    for env in 0..place.gpus.len() {
        let is_mate = |last: &Range<usize>| {
            place.number(last.start) == place.number(env) && last.len() < envs_per_process
        };
        match shares.last_mut() {
            Some(last) if is_mate(last) => last.end = env + 1,
            _ => shares.push(env..env + 1),
        }
    }
    shares
}

/// The copies of one Python environment.
pub struct PythonEnv {
    spec: EnvSpec,
    hello: Arc<Hello>,
    /// Index of the process of each copy.
    owners: Vec<usize>,
    processes: Processes,
}

impl From<PythonEnv> for NewEnv {
    fn from(env: PythonEnv) -> Self {
        Self {
            ignored: env.processes.host.settings.ignored.clone(),
            notes: env.hello.notes.clone(),
            versions: env.hello.versions(),
            env: Box::new(env),
        }
    }
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
        self.hello.together
    }

    fn open_renderers(&mut self) -> Result<Vec<String>, EnvError> {
        // The simulators open their renderers themselves, at the first image.
        let note = &self.processes.host.config.egl.note;
        Ok(note.iter().cloned().collect())
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

/// Maximum number of events handled at once.
const EVENTS: usize = 64;

/// The processes, which are closed or killed when this value is dropped. The thread that starts
/// them has to outlive them.
struct Processes {
    host: Host,
    children: Vec<Child>,
    /// Readable when a process has something.
    epoll: Arc<OwnedFd>,
}

impl Processes {
    /// Starts a process for each share. Returns when all of them are ready for work.
    ///
    /// # Errors
    /// Returns the error of the first process that does not become ready.
    fn start(
        settings: PythonSettings,
        config: PythonConfig,
        shares: Vec<Range<usize>>,
    ) -> Result<(Self, Arc<Hello>), EnvError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|err| EnvError::Setup(format!("cannot make an epoll: {err}")))?;
        let epoll = Arc::new(epoll);
        let children = shares.iter().cloned().enumerate();
        let children = children.map(|(index, envs)| Child::new(index, envs));
        let mut started = Self {
            children: children.collect(),
            host: Host::new(settings, config, Arc::clone(&epoll), shares)?,
            epoll,
        };
        for child in &mut started.children {
            child.start(&mut started.host);
        }
        let is_up = |child: &Child| child.worker.as_ref().is_some_and(Worker::is_up);
        loop {
            if let Some(failure) = started.host.failure.take() {
                return Err(failure);
            }
            let hello = started.host.hello.clone();
            if let Some(hello) = hello.filter(|_| started.children.iter().all(is_up)) {
                return Ok((started, hello));
            }
            let due = started.due();
            let left = due.map(|due| due.saturating_duration_since(now()));
            started.turn(left.map(timespec));
        }
    }

    /// Returns the time at which there is something to do anyway.
    fn due(&self) -> Option<Instant> {
        if !self.host.answers.is_empty() {
            return Some(now());
        }
        let children = self.children.iter().map(|child| &child.worker);
        let servers = self.host.servers.iter().map(|server| &server.worker);
        let workers = children.chain(servers).flatten();
        workers.filter_map(Worker::due).min()
    }

    /// Handles the next events, for which it waits until a time limit, and what is due.
    fn turn(&mut self, limit: Option<Timespec>) {
        let mut events = Vec::with_capacity(EVENTS);
        let room = rustix::buffer::spare_capacity(&mut events);
        // An interrupted wait counts as one without events.
        epoll::wait(&*self.epoll, room, limit.as_ref()).ok();
        for event in events {
            let index = event.data.u64() as usize;
            // The event may be that of a killed process; then the one in its place has none.
            self.host.dying.retain_mut(|worker| !worker.reap());
            match self.children.get_mut(index) {
                Some(child) => child.turn(&mut self.host),
                None => self.on_server(index - self.children.len()),
            }
        }
        let now = now();
        for child in &mut self.children {
            child.expire(&mut self.host, now);
        }
        for index in 0..self.host.servers.len() {
            let server = self.host.servers[index].worker.as_mut();
            if let Some(Err(loss)) = server.map(|server| server.expire(now)) {
                let told = self
                    .host
                    .told(&loss.text, &format!("it was at `{}`", loss.during));
                let told = format!("{told}, process {}", loss.pid);
                self.host.fail(&told, &loss.lines);
                self.host.bury_server(index);
            }
        }
    }

    /// Handles an event of a fork server. When it is ready or gone, the processes that wait for it
    /// are started.
    fn on_server(&mut self, index: usize) {
        let Some(server) = &mut self.host.servers[index].worker else {
            return;
        };
        match server.turn() {
            Ok(Some(Said::Stage(_))) => {
                return server.expect_by(Some(self.host.config.place.stall_timeout));
            }
            Ok(Some(Said::Hello(_))) => {}
            Ok(_) => return,
            Err(loss) => {
                tracing::debug!(target: "env", "the fork server is not used: it {}", loss.text);
                self.host.bury_server(index);
            }
        }
        for child in self.children.iter_mut().filter(|child| child.awaits_server) {
            child.start(&mut self.host);
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        close_all(
            self.children
                .iter_mut()
                .filter_map(|child| child.worker.take()),
        );
        (0..self.host.servers.len()).for_each(|index| self.host.bury_server(index));
        close_all(self.host.dying.drain(..));
    }
}
