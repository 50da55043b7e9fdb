//! The bridge thread between the evaluation loop and the simulator processes.
//!
//! It owns the processes, which are killed when it ends. It waits for commands, answers, output,
//! exits and deadlines, and never blocks on anything else.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use jobs::eval_args::Screen;
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::clock::{now, timespec};
use crate::env::display::{START_LIMIT, VirtualDisplay};
use crate::env::python::args::DisplayChoice;
use crate::env::python::child::Child;
use crate::env::python::fork_server::ServerEvent;
use crate::env::python::hello::Hello;
use crate::env::python::host::{Host, HostSettings, ProcessEvent};
use crate::env::{Answer, Answers, Command, EnvError, EnvIndex};
use crate::python::close_all;

/// Screen of an X display if the job gives no size.
const SCREEN: Screen = Screen {
    width: 1024,
    height: 768,
    depth: 24,
};
/// Event token of the eventfd, which is not the number of any process.
const WAKE: u64 = u64::MAX;
/// Maximum number of events handled at once.
const EVENTS: usize = 64;

/// A request of the evaluation loop.
pub enum BridgeRequest {
    /// Commands, at most one for each copy.
    Work(Vec<(EnvIndex, Command)>),
    /// Close all processes.
    Close,
}

/// The copies that share a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessShare {
    /// Indices of the copies.
    pub envs: Vec<EnvIndex>,
    /// GPU of the process, as `nvidia-smi` counts.
    pub gpu: Option<u32>,
}

/// The handle of the bridge thread in the evaluation loop.
pub struct BridgeHandle {
    requests: Sender<BridgeRequest>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl BridgeHandle {
    /// Starts the thread, and a process for each share. Returns when all of them are ready for
    /// work.
    ///
    /// # Errors
    /// Returns the error of the first process that does not become ready.
    pub fn start(
        terms: HostSettings,
        shares: Vec<ProcessShare>,
        screen: Option<Screen>,
        answers: Answers,
    ) -> Result<(Self, Arc<Hello>), EnvError> {
        let setup =
            |what: &str, err: std::io::Error| EnvError::Setup(format!("cannot make {what}: {err}"));
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|err| setup("an eventfd", err.into()))?;
        let wake = Arc::new(wake);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|err| setup("an epoll", err.into()))?;
        let data = epoll::EventData::new_u64(WAKE);
        epoll::add(&epoll, &*wake, data, epoll::EventFlags::IN)
            .map_err(|err| setup("an epoll", err.into()))?;
        let epoll = Arc::new(epoll);
        let (requests, inbox) = channel();
        let (opened, opening) = channel();
        let (woken, waiting) = (Arc::clone(&wake), Arc::clone(&epoll));
        let run = move || {
            let host = Host::new(terms, answers, epoll);
            Bridge {
                host,
                inbox,
                wake: woken,
                epoll: waiting,
                owners: Vec::new(),
                children: Vec::new(),
                is_closing: false,
                display: None,
            }
            .run(&shares, screen, &opened);
        };
        let thread = std::thread::Builder::new()
            .name("bridge".to_owned())
            .spawn(run);
        let thread = thread.map_err(|err| setup("a thread", err))?;
        let handle = Self {
            requests,
            wake,
            thread: Some(thread),
        };
        let gone = || EnvError::Setup("the thread of the simulators ended".to_owned());
        let hello = opening.recv().map_err(|_| gone())??;
        Ok((handle, hello))
    }

    /// Sends a request to the thread.
    pub fn ask(&self, request: BridgeRequest) {
        // If the thread is gone, its panic was printed.
        self.requests.send(request).ok();
        rustix::io::write(&*self.wake, &1u64.to_ne_bytes()).ok();
    }
}

impl Drop for BridgeHandle {
    fn drop(&mut self) {
        self.ask(BridgeRequest::Close);
        self.thread.take().map(JoinHandle::join);
    }
}

/// The child that owns a copy.
#[derive(Clone, Copy)]
struct CopyOwner {
    /// Index of the child.
    index: usize,
    /// Position of the copy in it.
    local: usize,
}

struct Bridge {
    host: Host,
    inbox: Receiver<BridgeRequest>,
    wake: Arc<OwnedFd>,
    epoll: Arc<OwnedFd>,
    /// The owner of each copy.
    owners: Vec<CopyOwner>,
    children: Vec<Child>,
    is_closing: bool,
    display: Option<VirtualDisplay>,
}

type OpenedSender = Sender<Result<Arc<Hello>, EnvError>>;

impl Bridge {
    fn run(&mut self, shares: &[ProcessShare], screen: Option<Screen>, opened: &OpenedSender) {
        let made = self.open(shares, screen);
        let made =
            made.and_then(|()| self.turn_until(|bridge| bridge.children.iter().all(Child::is_up)));
        let hello = made.and_then(|()| {
            self.host
                .hello
                .clone()
                .ok_or_else(|| EnvError::Setup("no copy is there".to_owned()))
        });
        let failed = hello.is_err();
        // If the caller no longer waits, the channel of requests is closed too.
        opened.send(hello).ok();
        while !failed && !self.is_closing {
            self.turn();
        }
        self.close();
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

    /// Handles events until `well` holds, a failure occurs, or closing begins.
    fn turn_until(&mut self, well: impl Fn(&Self) -> bool) -> Result<(), EnvError> {
        loop {
            if let Some(failure) = self.host.failure.take() {
                return Err(failure);
            }
            if well(self) || self.is_closing {
                return Ok(());
            }
            self.turn();
        }
    }

    /// Waits for the next events or deadline, and handles them.
    fn turn(&mut self) {
        let deadlines = self
            .children
            .iter()
            .filter_map(|child| child.deadline(&self.host));
        let deadline = deadlines.chain(self.host.answers_due()).min();
        let timeout = deadline.map(|deadline| timespec(deadline.saturating_duration_since(now())));
        let mut events = Vec::with_capacity(EVENTS);
        // An interrupted wait counts as one without events.
        epoll::wait(
            &*self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            timeout.as_ref(),
        )
        .ok();
        for event in events {
            self.on_event(event.data.u64());
        }
        if deadline.is_some_and(|deadline| deadline <= now()) {
            self.host.give_overdue();
            self.children
                .iter_mut()
                .for_each(|child| child.expire(&mut self.host, now()));
        }
        self.take_requests();
    }

    fn on_event(&mut self, token: u64) {
        if token == WAKE {
            rustix::io::read(&*self.wake, &mut [0; 8]).ok();
            return;
        }
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

    fn take_requests(&mut self) {
        while let Ok(request) = self.inbox.try_recv() {
            match request {
                BridgeRequest::Close => self.is_closing = true,
                BridgeRequest::Work(work) => self.work(work),
            }
        }
    }

    fn work(&mut self, work: Vec<(EnvIndex, Command)>) {
        self.host.begin_round(work.iter().map(|(env, _)| *env));
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

    /// Lets every process close its environments, and kills those that do not.
    fn close(&mut self) {
        close_all(self.children.iter_mut().filter_map(Child::shut));
        self.host.end_servers();
        close_all(self.host.dying());
        self.display = None;
    }
}
