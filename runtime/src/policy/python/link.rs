//! The connection to a worker's process: it waits for packets until a deadline, reads output
//! meanwhile, and kills and reaps the process at its end.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::clock::{now, timespec};
use crate::env::python::process::PythonProcess;
use crate::policy::Lifeline;
use crate::policy::python::error::{OutputLines, WorkerError};
use crate::policy::python::hello::WorkerHello;

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

/// The connection to a process: it waits for packets, and kills and reaps the process at its end.
pub(super) struct WorkerLink {
    /// The process.
    pub(super) process: PythonProcess,
    lifeline: Lifeline,
    /// The call that is under way, for messages.
    pub(super) during: String,
    limit: Duration,
    deadline: Instant,
    buffer: Vec<u8>,
    has_output: bool,
    /// Whether no call is under way.
    is_idle: bool,
}

impl WorkerLink {
    /// Takes a process that was just started.
    pub(super) fn new(process: PythonProcess, lifeline: Lifeline) -> Self {
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
    pub(super) fn begin(&mut self, limit: Duration) {
        (self.limit, self.deadline, self.is_idle) = (limit, now() + limit, false);
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// Returns the operating system's error, unless it means that the process has ended.
    pub(super) fn send(&self, packet: &[u8]) -> Result<(), Errno> {
        match self.process.send(packet) {
            // The process has ended; the wait for its answer finds out how.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            sent => sent,
        }
    }

    /// Returns the error of a packet that could not be sent.
    pub(super) fn deaf(&mut self, err: Errno) -> WorkerError {
        self.nonsense(&format!("it takes no packet ({err})"))
    }

    /// Waits for the description of the policy.
    ///
    /// # Errors
    /// Returns a [`WorkerError`]; all but [`WorkerError::Raised`] mean that the process is of no
    /// use any more.
    pub(super) fn until_hello(&mut self) -> Result<WorkerHello, WorkerError> {
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

    /// Waits for the word that the worker has its memory.
    ///
    /// # Errors
    /// As [`WorkerLink::until_hello`].
    pub(super) fn until_ready(&mut self) -> Result<(), WorkerError> {
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
    ///
    /// # Errors
    /// As [`WorkerLink::until_hello`].
    pub(super) fn until_answer(&mut self, sequence: u32) -> Result<(), WorkerError> {
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
            PollFd::new(&self.process.exit, PollFlags::IN),
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
            self.listen();
        }
    }

    /// Reads what the process has written; it never has to wait for a full pipe to be read.
    pub(super) fn listen(&mut self) {
        let (lines, more) = self.process.listen();
        self.has_output = more;
        for line in lines {
            tracing::debug!(target: "policy", "{line}");
        }
    }

    /// Returns whether the process ends within `limit`.
    pub(super) fn is_over(&self, limit: Duration) -> bool {
        let mut ready = [PollFd::new(&self.process.exit, PollFlags::IN)];
        poll(&mut ready, Some(&timespec(limit))).is_ok_and(|count| count > 0)
    }

    /// Returns the last lines of the output.
    pub(super) fn lines(&mut self) -> OutputLines {
        self.listen();
        OutputLines::last_of(&self.process.lines.all())
    }

    /// Returns how the process ended.
    pub(super) fn ended(&mut self) -> WorkerError {
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
