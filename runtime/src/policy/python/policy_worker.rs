//! One worker: a Python process with the policy, and the memory that it shares with this process.
//!
//! The thread of the policy waits for it, with a deadline, and reads its output meanwhile, so that
//! it never blocks on a full pipe. Nothing that it sends is trusted.

use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use tch::Device;

use crate::clock::now;
use crate::env::EnvSpec;
use crate::env::python::process::PythonProcess;
use crate::env::python::shm::SharedMemory;
use crate::policy::Lifeline;
use crate::policy::python::error::{OutputLines, WorkerError};
use crate::policy::python::hello::WorkerHello;
use crate::policy::python::layout::BatchLayout;
use crate::policy::python::settings::PythonPolicySettings;

/// The worker's Python modules.
const MODULES: &[(&str, &str)] = &[("rrun_policy", include_str!("worker/rrun_policy.py"))];
/// How often a wait looks whether the evaluation is being stopped.
const TICK: Duration = Duration::from_millis(200);
/// Time in which a process that has closed its socket may end, so that its exit code is known.
const END_LIMIT: Duration = Duration::from_secs(1);
/// Time limit for a worker to end by itself, and to die after it was killed.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// A packet that asks the worker to end.
const CLOSE: &[u8] = b"C";
/// Most stages of a start; `rrun_policy.py` has four.
const MOST_STAGES: usize = 16;
/// Maximum letters of a packet in a message.
const LONGEST_QUOTE: usize = 100;
/// Bytes before the text of an answer: its kind and its sequence number.
const HEAD: usize = 5;

/// What all workers of a policy have in common.
#[derive(Clone, Debug)]
pub(super) struct WorkerTerms {
    /// Settings of the job.
    pub(super) settings: PythonPolicySettings,
    /// The environment in which the policy acts.
    pub(super) env: EnvSpec,
    /// The device of the rank.
    pub(super) device: Device,
    /// Ends all waiting when it is cut.
    pub(super) lifeline: Lifeline,
}

impl WorkerTerms {
    /// Returns the configuration, which a worker gets first.
    fn config(&self, process: &PythonProcess) -> Value {
        json!({
            "modules": MODULES,
            "memory_fd": process.memfd.as_raw_fd(),
            "policy": self.settings.policy,
            "policy_kwargs": self.settings.kwargs,
            "seed": self.settings.seed,
            "device": device_name(self.device),
            "spec": self.spec(),
        })
    }

    /// Returns the description of the environment that the factory gets.
    fn spec(&self) -> Value {
        let env = &self.env;
        let cameras = env.cameras.iter().map(|camera| {
            let size = json!({"height": camera.height, "width": camera.width});
            (camera.name.clone(), size)
        });
        let states = env
            .state
            .iter()
            .map(|(name, length)| (name.clone(), json!(length)));
        json!({
            "environment": env.name,
            "cameras": cameras.collect::<serde_json::Map<_, _>>(),
            "states": states.collect::<serde_json::Map<_, _>>(),
            // An infinite bound becomes null, and infinite again in the worker.
            "actions": {
                "names": env.action.names, "low": env.action.low, "high": env.action.high,
            },
            "control_hz": env.control_hz,
            "max_episode_steps": env.max_episode_steps,
            "language": env.language,
        })
    }
}

/// Returns PyTorch's name of a device.
fn device_name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}

/// A worker that has made its policy.
pub(super) struct PolicyWorker {
    link: WorkerLink,
    memory: SharedMemory,
    /// What it says about its policy.
    pub(super) hello: WorkerHello,
    /// The places in shared memory.
    pub(super) layout: BatchLayout,
    sequence: u32,
}

impl PolicyWorker {
    /// Starts a worker, and returns when its policy is made.
    ///
    /// # Errors
    /// Returns a [`WorkerError`] that says at which stage it failed; the process is gone then.
    pub(super) fn start(terms: &WorkerTerms) -> Result<Self, WorkerError> {
        let settings = &terms.settings;
        let label = format!("rrun-policy policy={}", settings.policy);
        let variables = variables(settings);
        let process = PythonProcess::start(0, &settings.python, &label, &variables);
        let process = process.map_err(|err| WorkerError::Spawn {
            python: settings.python.clone(),
            err,
        })?;
        let mut link = WorkerLink::new(process, terms.lifeline.clone());
        link.during = "the start of the interpreter".to_owned();
        link.begin(settings.startup_timeout);
        let config = terms.config(&link.process).to_string();
        link.send(config.as_bytes()).map_err(|err| link.deaf(err))?;
        let hello = link.until_hello()?;
        let needs_video = hello.needs_video && !terms.env.cameras.is_empty();
        let layout = BatchLayout::new(&terms.env, needs_video, hello.action_horizon)?;
        let memory = SharedMemory::with_size(&link.process.memfd, layout.bytes, 2);
        let memory = memory.map_err(|err| WorkerError::Memory {
            bytes: layout.bytes,
            err,
        })?;
        let places = layout.to_json().to_string();
        link.send(places.as_bytes()).map_err(|err| link.deaf(err))?;
        link.until_ready()?;
        Ok(Self {
            link,
            memory,
            hello,
            layout,
            sequence: 0,
        })
    }

    /// Returns whether the process has ended since its last answer.
    pub(super) fn has_ended(&mut self) -> bool {
        let (lines, _) = self.link.process.listen();
        log(&lines);
        self.link.is_over(Duration::ZERO)
    }

    /// Returns why a worker is gone that has ended between two calls.
    pub(super) fn ended(&mut self) -> WorkerError {
        self.link.during = "no call".to_owned();
        self.link.ended()
    }

    /// Writes a picture of a row.
    ///
    /// # Errors
    /// Returns [`WorkerError::Memory`].
    pub(super) fn show(&self, camera: usize, row: usize, rgb: &[u8]) -> Result<(), WorkerError> {
        let place = self.layout.picture(camera, row);
        let written = self.memory.write_bytes(place.start, rgb);
        written.map_err(|err| self.out_of_memory(err))
    }

    /// Writes a state vector of a row.
    ///
    /// # Errors
    /// Returns [`WorkerError::Memory`].
    pub(super) fn tell(&self, state: usize, row: usize, vector: &[f32]) -> Result<(), WorkerError> {
        let place = self.layout.state(state, row);
        let written = self.memory.write(place.start, vector);
        written.map_err(|err| self.out_of_memory(err))
    }

    /// Asks for the actions of the rows that are in shared memory: `call` without its sequence
    /// number. Returns `[rows, horizon, action]` as bytes.
    ///
    /// # Errors
    /// Returns a [`WorkerError`]; see [`WorkerError::leaves_worker`].
    pub(super) fn ask(
        &mut self,
        mut call: Value,
        rows: usize,
        limit: Duration,
    ) -> Result<Bytes, WorkerError> {
        self.sequence = self.sequence.wrapping_add(1);
        call["sequence"] = self.sequence.into();
        self.link.during = match rows {
            1 => "`act` of 1 row".to_owned(),
            rows => format!("`act` of {rows} rows"),
        };
        self.link.begin(limit);
        match self.link.send(call.to_string().as_bytes()) {
            Err(err @ (Errno::MSGSIZE | Errno::NOBUFS)) => {
                let err = err.into();
                return Err(WorkerError::TooLong { rows, err });
            }
            sent => sent.map_err(|err| self.link.deaf(err))?,
        }
        self.link.until_answer(self.sequence)?;
        let read = self.memory.read(self.layout.actions(rows));
        read.map_err(|err| self.out_of_memory(err))
    }

    fn out_of_memory(&self, err: std::io::Error) -> WorkerError {
        WorkerError::Memory {
            bytes: self.layout.bytes,
            err,
        }
    }
}

/// Returns the environment variables of a worker.
fn variables(settings: &PythonPolicySettings) -> Vec<(String, Option<String>)> {
    let mut all = settings.variables.clone();
    let name = "PYTHONHASHSEED";
    let is_given = all.iter().any(|(given, _)| given == name);
    if !is_given && std::env::var_os(name).is_none() {
        // Sets of strings then have the same order in each worker.
        all.push((name.to_owned(), Some("0".to_owned())));
    }
    all
}

/// The connection to a process: it waits for packets, and kills and reaps the process at its end.
struct WorkerLink {
    process: PythonProcess,
    lifeline: Lifeline,
    /// The call that is under way, for messages.
    during: String,
    limit: Duration,
    deadline: Instant,
    buffer: Vec<u8>,
    has_output: bool,
    /// Whether no call is under way.
    is_idle: bool,
}

impl WorkerLink {
    fn new(process: PythonProcess, lifeline: Lifeline) -> Self {
        Self {
            process,
            lifeline,
            during: String::new(),
            limit: Duration::ZERO,
            deadline: now(),
            buffer: Vec::new(),
            has_output: true,
            is_idle: false,
        }
    }

    /// Begins a call with a time limit.
    fn begin(&mut self, limit: Duration) {
        (self.limit, self.deadline, self.is_idle) = (limit, now() + limit, false);
    }

    fn send(&self, packet: &[u8]) -> Result<(), Errno> {
        match self.process.send(packet) {
            // The process has ended; the wait for its answer finds out how.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            sent => sent,
        }
    }

    /// Returns the error of a packet that could not be sent.
    fn deaf(&mut self, err: Errno) -> WorkerError {
        self.nonsense(&format!("it takes no packet ({err})"))
    }

    /// Waits for the description of the policy.
    fn until_hello(&mut self) -> Result<WorkerHello, WorkerError> {
        for _ in 0..=MOST_STAGES {
            let packet = self.receive()?;
            match packet.split_first() {
                Some((b'S', stage)) => self.during = self.quote(stage),
                Some((b'H', text)) => {
                    let hello = WorkerHello::parse(text);
                    return hello.ok_or_else(|| self.unexpected(&packet));
                }
                _ => return Err(self.unexpected(&packet)),
            }
        }
        Err(self.nonsense("too many stages of its start"))
    }

    fn until_ready(&mut self) -> Result<(), WorkerError> {
        let packet = self.receive()?;
        match &packet[..] {
            b"R" => {
                self.is_idle = true;
                Ok(())
            }
            _ => Err(self.unexpected(&packet)),
        }
    }

    /// Waits for the answer to a call; `Ok` means that the actions are in shared memory.
    fn until_answer(&mut self, sequence: u32) -> Result<(), WorkerError> {
        let packet = self.receive()?;
        let number = packet.get(1..HEAD).and_then(|bytes| bytes.try_into().ok());
        if number.map(u32::from_ne_bytes) != Some(sequence) {
            return Err(self.unexpected(&packet));
        }
        self.is_idle = true;
        match packet[0] {
            b'A' if packet.len() == HEAD => Ok(()),
            b'E' => Err(WorkerError::Raised {
                reason: String::from_utf8_lossy(&packet[HEAD..]).into_owned(),
            }),
            b'G' => Err(WorkerError::Refused {
                reason: String::from_utf8_lossy(&packet[HEAD..]).into_owned(),
                lines: OutputLines::default(),
            }),
            _ => Err(self.unexpected(&packet)),
        }
    }

    /// Waits for the next packet until the deadline.
    fn receive(&mut self) -> Result<Vec<u8>, WorkerError> {
        loop {
            // The last packet of a process that has ended explains more than its exit code.
            let has_ended = self.is_over(Duration::ZERO);
            match self.process.receive_bytes(&mut self.buffer) {
                Some([]) => return Err(self.ended()),
                Some(packet) => return Ok(packet.to_vec()),
                None if has_ended => return Err(self.ended()),
                None => {}
            }
            let left = self.deadline.saturating_duration_since(now());
            if self.lifeline.is_cut() {
                let during = self.during.clone();
                return Err(WorkerError::Stopped { during });
            }
            if left.is_zero() {
                let lines = self.lines();
                return Err(WorkerError::Stalled {
                    seconds: self.limit.as_secs_f64(),
                    during: self.during.clone(),
                    lines,
                });
            }
            self.wait(left.min(TICK));
        }
    }

    /// Waits until there is something to read, and reads output.
    fn wait(&mut self, limit: Duration) {
        let mut ready = vec![
            PollFd::new(&self.process.socket, PollFlags::IN),
            PollFd::new(&self.process.pidfd, PollFlags::IN),
        ];
        if self.has_output {
            ready.push(PollFd::new(&self.process.output, PollFlags::IN));
        }
        // An interrupted wait counts as one without events.
        poll(&mut ready, Some(&timespec(limit))).ok();
        if ready
            .get(2)
            .is_some_and(|output| !output.revents().is_empty())
        {
            let (lines, more) = self.process.listen();
            log(&lines);
            self.has_output = more;
        }
    }

    /// Returns whether the process ends within `limit`.
    fn is_over(&self, limit: Duration) -> bool {
        let mut ready = [PollFd::new(&self.process.pidfd, PollFlags::IN)];
        poll(&mut ready, Some(&timespec(limit))).is_ok_and(|count| count > 0)
    }

    /// Returns the last lines of the output.
    fn lines(&mut self) -> OutputLines {
        log(&self.process.listen().0);
        OutputLines::last_of(&self.process.lines.all())
    }

    /// Returns how the process ended.
    fn ended(&mut self) -> WorkerError {
        self.is_over(END_LIMIT);
        WorkerError::Ended {
            ending: self.process.ending(),
            during: self.during.clone(),
            lines: self.lines(),
        }
    }

    /// Returns the error of a packet that does not belong here. A process that gives up says why.
    fn unexpected(&mut self, packet: &[u8]) -> WorkerError {
        if let Some((b'F', reason)) = packet.split_first() {
            let reason = String::from_utf8_lossy(reason).into_owned();
            self.is_over(END_LIMIT);
            return WorkerError::Refused {
                reason,
                lines: self.lines(),
            };
        }
        let what = format!("`{}`", self.quote(packet));
        self.nonsense(&what)
    }

    fn nonsense(&mut self, what: &str) -> WorkerError {
        WorkerError::Nonsense {
            what: what.to_owned(),
            during: self.during.clone(),
            lines: self.lines(),
        }
    }

    /// Returns the beginning of a packet as printable text.
    fn quote(&self, packet: &[u8]) -> String {
        let text = String::from_utf8_lossy(&packet[..packet.len().min(4 * LONGEST_QUOTE)]);
        let printable = |letter: char| {
            if letter.is_control() {
                '\u{fffd}'
            } else {
                letter
            }
        };
        text.chars().take(LONGEST_QUOTE).map(printable).collect()
    }
}

impl Drop for WorkerLink {
    fn drop(&mut self) {
        // A worker that is idle ends by itself; one that does not answer is not waited for.
        if self.is_idle && self.process.send(CLOSE).is_ok() {
            self.is_over(CLOSE_LIMIT);
        }
        self.process.kill();
        // A process that hangs in a driver even then is left to the kernel.
        if self.is_over(CLOSE_LIMIT) {
            self.process.reap();
        }
    }
}

fn log(lines: &[String]) {
    lines
        .iter()
        .for_each(|line| tracing::debug!(target: "policy", "{line}"));
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
