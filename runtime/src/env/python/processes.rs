//! The processes of one environment, driven by whoever takes their answers: a turn handles what
//! their descriptors have, and what is due, and never blocks.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use jobs::eval_args::Screen;
use rustix::event::{Timespec, epoll};

use crate::clock::{now, timespec};
use crate::env::display::{START_LIMIT, VirtualDisplay};
use crate::env::python::args::DisplayChoice;
use crate::env::python::child::Child;
use crate::env::python::fork_server::ServerEvent;
use crate::env::python::hello::Hello;
use crate::env::python::host::{Host, HostSettings, ProcessEvent};
use crate::env::{Answer, AnswerBatch, Command, EnvError, EnvIndex};
use crate::python::close_all;

/// Screen of an X display if the job gives no size.
const SCREEN: Screen = Screen {
    width: 1024,
    height: 768,
    depth: 24,
};
/// Maximum number of events handled at once.
const EVENTS: usize = 64;

/// The copies that share a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessShare {
    /// Indices of the copies.
    pub envs: Vec<EnvIndex>,
    /// GPU of the process, as `nvidia-smi` counts.
    pub gpu: Option<u32>,
}

/// The child that owns a copy.
#[derive(Clone, Copy)]
struct CopyOwner {
    /// Index of the child.
    index: usize,
    /// Position of the copy in it.
    local: usize,
}

/// The processes, which are closed or killed when this value is dropped. The thread that starts
/// them has to outlive them.
pub struct Processes {
    host: Host,
    epoll: Arc<OwnedFd>,
    /// The owner of each copy.
    owners: Vec<CopyOwner>,
    children: Vec<Child>,
    display: Option<VirtualDisplay>,
}

impl Processes {
    /// Starts a process for each share. Returns when all of them are ready for work.
    ///
    /// # Errors
    /// Returns the error of the first process that does not become ready.
    pub fn start(
        terms: HostSettings,
        shares: &[ProcessShare],
        screen: Option<Screen>,
    ) -> Result<(Self, Arc<Hello>), EnvError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|err| EnvError::Setup(format!("cannot make an epoll: {err}")))?;
        let epoll = Arc::new(epoll);
        let mut started = Self {
            host: Host::new(terms, Arc::clone(&epoll)),
            epoll,
            owners: Vec::new(),
            children: Vec::new(),
            display: None,
        };
        started.open(shares, screen)?;
        loop {
            if let Some(failure) = started.host.failure.take() {
                return Err(failure);
            }
            if started.children.iter().all(Child::is_up) {
                break;
            }
            let left = started
                .due()
                .map(|due| due.saturating_duration_since(now()));
            started.turn(left.map(timespec));
        }
        let hello = started.host.hello.clone();
        let hello = hello.ok_or_else(|| EnvError::Setup("no copy is there".to_owned()))?;
        Ok((started, hello))
    }

    /// Returns the descriptor that is readable when a process has something.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Returns the time at which [`Processes::take`] has to be called anyway.
    pub fn due(&self) -> Option<Instant> {
        if !self.host.answers.is_empty() {
            return Some(now());
        }
        let children = self.children.iter();
        children
            .filter_map(|child| child.deadline(&self.host))
            .min()
    }

    /// Handles what there is, and takes the answers.
    pub fn take(&mut self) -> AnswerBatch {
        self.turn(Some(Timespec::default()));
        std::mem::take(&mut self.host.answers)
    }

    fn open(&mut self, shares: &[ProcessShare], screen: Option<Screen>) -> Result<(), EnvError> {
        self.host.display = self.display(screen)?;
        for (index, share) in shares.iter().enumerate() {
            let owner = |local| CopyOwner { index, local };
            self.owners.extend((0..share.envs.len()).map(owner));
            self.children
                .push(Child::new(index, &share.envs, share.gpu));
        }
        self.host.start_servers(shares);
        self.children
            .iter_mut()
            .for_each(|child| child.start(&mut self.host, now()));
        Ok(())
    }

    /// Tells the children that wait for a fork server what it does.
    fn on_server(&mut self, event: &ServerEvent) {
        let waiting = self
            .children
            .iter_mut()
            .filter(|child| child.awaits_server());
        match event {
            ServerEvent::None => {}
            ServerEvent::Stage(stage) => {
                waiting.for_each(|child| child.on_server_stage(stage, now()));
            }
            ServerEvent::Ready | ServerEvent::Over => {
                waiting.for_each(|child| child.start(&mut self.host, now()));
            }
        }
    }

    /// Returns the X display for the processes, and starts it if necessary.
    fn display(&mut self, screen: Option<Screen>) -> Result<Option<String>, EnvError> {
        let wanted = match (&self.host.terms.settings.display, screen) {
            (DisplayChoice::Named(name), _) => return Ok(Some(name.clone())),
            (DisplayChoice::Inherited, None) => return Ok(None),
            (DisplayChoice::Own | DisplayChoice::Inherited, screen) => screen.unwrap_or(SCREEN),
        };
        let started = VirtualDisplay::start(Path::new("Xvfb"), wanted, START_LIMIT)
            .map_err(EnvError::Setup)?;
        Ok(Some(self.display.insert(started).name().to_owned()))
    }

    /// Handles the next events, for which it waits until a time limit, and what is due.
    fn turn(&mut self, limit: Option<Timespec>) {
        let mut events = Vec::with_capacity(EVENTS);
        // An interrupted wait counts as one without events.
        epoll::wait(
            &*self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            limit.as_ref(),
        )
        .ok();
        for event in events {
            self.on_event(event.data.u64());
        }
        let now = now();
        self.children
            .iter_mut()
            .for_each(|child| child.expire(&mut self.host, now));
    }

    fn on_event(&mut self, token: u64) {
        let Some(ProcessEvent {
            process,
            owner,
            ready,
        }) = self.host.event(token)
        else {
            return;
        };
        if let Some(event) = self.host.on_server(process, ready) {
            return self.on_server(&event);
        }
        let child = owner.and_then(|index| self.children.get_mut(index));
        match child.filter(|child| child.has(process)) {
            Some(child) => child.on(ready, &mut self.host, now()),
            None => self.host.reap(process),
        }
        if let Some(child) = owner.and_then(|index| self.children.get_mut(index)) {
            child.flush(&mut self.host, now());
        }
    }

    /// Takes commands, at most one for each copy.
    pub fn send(&mut self, work: Vec<(EnvIndex, Command)>) {
        let mut touched = Vec::new();
        for (env, command) in work {
            let Some(&CopyOwner { index, local }) = self.owners.get(env.0) else {
                let err = EnvError::Episode {
                    env,
                    reason: "there is no such copy".to_owned(),
                };
                self.host.give(env, Answer::refuse(&command, err));
                continue;
            };
            self.children[index].take(local, command, &mut self.host);
            if touched.last() != Some(&index) {
                touched.push(index);
            }
        }
        touched
            .into_iter()
            .for_each(|index| self.children[index].flush(&mut self.host, now()));
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        close_all(self.children.iter_mut().filter_map(Child::shut));
        self.host.end_servers();
        close_all(self.host.dying());
    }
}
