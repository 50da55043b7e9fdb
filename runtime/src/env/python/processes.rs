//! The processes of one environment, driven by whoever takes their answers: a turn handles what
//! their descriptors have, and what is due, and never blocks.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{Timespec, epoll};

use crate::clock::{now, timespec};
use crate::env::EnvError;
use crate::env::python::PythonConfig;
use crate::env::python::child::Child;
use crate::env::python::hello::Hello;
use crate::env::python::host::Host;
use crate::env::python::settings::PythonSettings;
use crate::python::{READY, Ready, Said, Worker, close_all};

/// Maximum number of events handled at once.
const EVENTS: usize = 64;

/// The processes, which are closed or killed when this value is dropped. The thread that starts
/// them has to outlive them.
pub struct Processes {
    pub host: Host,
    pub children: Vec<Child>,
    /// Readable when a process has something.
    pub epoll: Arc<OwnedFd>,
}

impl Processes {
    /// Starts a process for each share. Returns when all of them are ready for work.
    ///
    /// # Errors
    /// Returns the error of the first process that does not become ready.
    pub fn start(
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
    pub fn due(&self) -> Option<Instant> {
        if !self.host.answers.is_empty() {
            return Some(now());
        }
        let children = self.children.iter().map(|child| &child.worker);
        let servers = self.host.servers.iter().map(|server| &server.worker);
        let workers = children.chain(servers).flatten();
        workers.filter_map(Worker::due).min()
    }

    /// Handles the next events, for which it waits until a time limit, and what is due.
    pub fn turn(&mut self, limit: Option<Timespec>) {
        let mut events = Vec::with_capacity(EVENTS);
        let room = rustix::buffer::spare_capacity(&mut events);
        // An interrupted wait counts as one without events.
        epoll::wait(&*self.epoll, room, limit.as_ref()).ok();
        for event in events {
            let (index, ready) = ((event.data.u64() / 4) as usize, event.data.u64() % 4);
            let ready = READY[ready as usize];
            // The event may be that of a killed process; then the one in its place has none.
            self.host.dying.retain_mut(|worker| !worker.reap());
            match self.children.get_mut(index) {
                Some(child) => child.on(ready, &mut self.host),
                None => self.on_server(index - self.children.len(), ready),
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
    fn on_server(&mut self, index: usize, ready: Ready) {
        let Some(server) = &mut self.host.servers[index].worker else {
            return;
        };
        match server.on(ready) {
            Ok(Some(Said::Stage(_))) => {
                return server.expect_by(Some(self.host.config.stall_timeout));
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
