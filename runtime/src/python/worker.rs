//! One conversation with a Python process: the stages of its start, requests and answers,
//! deadlines, and each way in which it ends.
//!
//! ```text
//! Starting ──hello──► Up ──close──► Closing
//!    └──────────────────┴──────────────┴──► a Loss: exited, raised, no answer in time, nonsense
//! ```
//! Nothing here blocks but [`Worker::wait`], [`close_all`] and the drop of a worker.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;

use crate::clock::{now, timespec};
use crate::python::Program;
use crate::python::end::is_readable;
use crate::python::memory::SharedMemory;
use crate::python::process::{Cause, Loss, PythonProcess, Said};

/// Time in which a process that has closed its socket may end, so that its exit code is known.
const END_LIMIT: Duration = Duration::from_secs(1);
/// Time limit for a process to end by itself, and to die after it was killed.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Maximum bytes of a reason, because it is written to the journal and to messages, and a packet
/// may have 200 kB.
const LONGEST_REASON: usize = 16_000;
/// Maximum letters of a packet in a message.
const LONGEST_QUOTE: usize = 100;
/// Bytes before the body of a packet.
const HEAD: usize = 8;
/// Where no copy is to blame.
const NOBODY: u16 = u16::MAX;

/// A process, and how far the conversation is.
pub struct Worker {
    process: PythonProcess,
    phase: Phase,
    /// What it is at, for messages: the stage of its start, or the request.
    during: String,
    /// When something has to have happened, and the time limit that says so.
    due: Option<(Instant, Duration)>,
    stages_left: usize,
    sequence: u32,
    buffer: Vec<u8>,
    /// Takes each line of its output.
    sink: Sink,
    is_abandoned: bool,
}

/// Takes the lines that a process writes.
type Sink = Box<dyn FnMut(&str) + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Up,
    Closing,
    /// It has ended, or is given up.
    Over,
}

impl Worker {
    /// Starts a program, or asks a fork server for its process, which dies with the server. The
    /// calling thread has to outlive it. `sink` takes the lines that it writes.
    ///
    /// # Errors
    /// Returns the system's error, without the name of the program.
    pub fn start(program: &Program, server: Option<&Self>, sink: Sink) -> io::Result<Self> {
        let mut new = Self {
            process: PythonProcess::start(program, server.map(|server| &server.process))?,
            phase: Phase::Starting,
            during: "start of the interpreter".to_owned(),
            due: None,
            stages_left: program.stages,
            sequence: 0,
            buffer: Vec::new(),
            sink,
            is_abandoned: false,
        };
        new.expect_by(program.limit);
        Ok(new)
    }

    /// Has an epoll watch its descriptors, with this token: [`Worker::turn`] takes what they have.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn watch(&self, watcher: &OwnedFd, token: u64) -> io::Result<()> {
        for fd in self.process.watched() {
            let data = epoll::EventData::new_u64(token);
            epoll::add(watcher, fd, data, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Returns the PID; 0 if a fork server has not told it yet.
    pub fn pid(&self) -> u32 {
        self.process.end.pid()
    }

    /// Returns whether it has said what it is.
    pub fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Returns whether it was asked to end.
    pub fn is_closing(&self) -> bool {
        self.phase == Phase::Closing
    }

    /// Returns what it is at.
    pub fn during(&self) -> &str {
        &self.during
    }

    /// Sets the size of the memory for good, before the first request; see
    /// [`SharedMemory::with_size`].
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn memory(&self, bytes: usize, buffers: usize) -> io::Result<SharedMemory> {
        SharedMemory::with_size(&self.process.memfd, bytes, buffers)
    }

    /// Returns the time at which [`Worker::expire`] has to be called.
    pub fn due(&self) -> Option<Instant> {
        self.due.map(|(at, _)| at)
    }

    /// Expects something within a limit from now on; nothing, without one.
    pub fn expect_by(&mut self, limit: Option<Duration>) {
        self.due = limit.map(|limit| (now() + limit, limit));
    }

    /// Sends a request with `count` entries, and returns its number. What is expected by when is
    /// for the caller to say.
    ///
    /// # Errors
    /// Returns the system's error, unless it means that the process has ended, which is found out
    /// soon: `EAGAIN` if it does not read.
    pub fn ask(&mut self, count: u16, body: &[u8]) -> Result<u32, Errno> {
        let sequence = self.sequence.wrapping_add(1);
        let mut packet = Vec::with_capacity(HEAD + body.len());
        packet.extend([b'Q', 0]);
        packet.extend(count.to_ne_bytes());
        packet.extend(sequence.to_ne_bytes());
        packet.extend(body);
        match self.process.send(&packet) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(err) => return Err(err),
        }
        self.sequence = sequence;
        Ok(sequence)
    }

    /// Says what it is at from now on.
    pub fn is_at(&mut self, during: impl Into<String>) {
        self.during = during.into();
    }

    /// Asks it to end. If it does not, [`Worker::expire`] kills it.
    pub fn close(&mut self) {
        // If the packet cannot be sent, the process is killed after the time limit.
        self.process.send(b"C\0\0\0\0\0\0\0").ok();
        self.phase = Phase::Closing;
        self.expect_by(Some(CLOSE_LIMIT));
    }

    /// Takes one packet, or else what it has written and its end; never blocks.
    ///
    /// # Errors
    /// Returns the [`Loss`] of a process that is of no use any more.
    pub fn turn(&mut self) -> Result<Option<Said>, Loss> {
        if let Some(said) = self.receive()? {
            return Ok(Some(said));
        }
        self.listen();
        if !self.process.end.has_come() {
            return Ok(None);
        }
        // Earlier packets explain more than the exit code.
        match self.receive()? {
            None => Err(self.loss(&self.process.end.describe())),
            said => Ok(said),
        }
    }

    /// Gives up on what is due.
    ///
    /// # Errors
    /// Returns the [`Loss`] of a process that has exceeded its time limit.
    pub fn expire(&mut self, now: Instant) -> Result<(), Loss> {
        let Some((_, limit)) = self.due.filter(|(at, _)| *at <= now) else {
            return Ok(());
        };
        match self.phase {
            Phase::Closing => {
                // The exit of the process arrives as an event.
                self.process.end.kill();
                self.due = None;
                Ok(())
            }
            _ if self.process.socket.is_none() => Err(self.loss("closed its connection")),
            _ => Err(self.loss(&format!("gave no answer for {} s", limit.as_secs_f64()))),
        }
    }

    /// Waits for what it says until `until`.
    ///
    /// # Errors
    /// As [`Worker::turn`] and [`Worker::expire`].
    pub fn wait(&mut self, until: Instant) -> Result<Option<Said>, Loss> {
        loop {
            let end = self.due().map_or(until, |due| due.min(until));
            let left = timespec(end.saturating_duration_since(now()));
            // An interrupted wait counts as one without events.
            if poll(&mut readable(self.process.watched()), Some(&left)).is_ok_and(|count| count > 0)
                && let Some(said) = self.turn()?
            {
                return Ok(Some(said));
            }
            self.expire(now())?;
            if until <= now() {
                return Ok(None);
            }
        }
    }

    /// Receives one packet, if there is one.
    fn receive(&mut self) -> Result<Option<Said>, Loss> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let said = match self.process.receive(&mut buffer) {
            None => Ok(None),
            Some([]) => {
                // It is closed; the exit code may still arrive.
                self.process.socket = None;
                if self.due().is_none_or(|at| at > now() + END_LIMIT) {
                    self.expect_by(Some(END_LIMIT));
                }
                Ok(None)
            }
            Some(packet) => self.take(packet),
        };
        self.buffer = buffer;
        said
    }

    fn take(&mut self, packet: &[u8]) -> Result<Option<Said>, Loss> {
        let Some((head, body)) = packet.split_first_chunk::<HEAD>() else {
            return Err(self.nonsense(packet));
        };
        let &[kind, _, c0, c1, s0, s1, s2, s3] = head;
        let count = u16::from_ne_bytes([c0, c1]);
        let sequence = u32::from_ne_bytes([s0, s1, s2, s3]);
        match (self.phase, kind) {
            (Phase::Starting, b'S') => {
                self.during = text(body);
                let Some(left) = self.stages_left.checked_sub(1) else {
                    return Err(self.loss("has too many stages of its start"));
                };
                self.stages_left = left;
                Ok(Some(Said::Stage(text(body))))
            }
            (Phase::Starting, b'H') => {
                self.phase = Phase::Up;
                self.due = None;
                Ok(Some(Said::Hello(body.to_vec())))
            }
            (Phase::Starting | Phase::Up, b'N') => Ok(Some(Said::Note(text(body)))),
            // What it does at its end is not needed.
            (Phase::Closing, b'A' | b'E' | b'N') => Ok(None),
            (Phase::Up, b'A') => Ok(Some(Said::Answer {
                sequence,
                count,
                body: body.to_vec(),
            })),
            (Phase::Up, b'E') => Ok(Some(Said::Failed {
                sequence,
                reason: text(body),
            })),
            (_, b'X') => {
                // Its last words may be on their way.
                is_readable(&self.process.end.exit, END_LIMIT);
                let mut loss = self.loss(&text(body));
                loss.cause = match sequence {
                    1 => Cause::Refused,
                    _ => Cause::GaveUp((count != NOBODY).then_some(count)),
                };
                Err(loss)
            }
            _ => Err(self.nonsense(packet)),
        }
    }

    fn nonsense(&mut self, packet: &[u8]) -> Loss {
        let printable = |letter: char| match letter.is_control() {
            true => '\u{fffd}',
            false => letter,
        };
        let quote = text(&packet[..packet.len().min(4 * LONGEST_QUOTE)]);
        let quote: String = quote.chars().take(LONGEST_QUOTE).map(printable).collect();
        self.loss(&format!("sent nonsense: `{quote}`"))
    }

    /// Gives the process up for a reason: a clause about it.
    pub fn loss(&mut self, reason: &str) -> Loss {
        self.phase = Phase::Over;
        self.listen();
        // A forked process may have had no event yet that tells its PID.
        self.process.end.has_come();
        Loss {
            cause: Cause::Seen,
            text: reason[..reason.floor_char_boundary(LONGEST_REASON)].to_owned(),
            during: self.during.clone(),
            lines: self.process.lines.all(),
            pid: self.process.end.pid(),
        }
    }

    /// Reads what the process has written; it never has to wait for a full pipe to be read.
    fn listen(&mut self) {
        let lines = self.process.listen();
        lines.iter().for_each(|line| (self.sink)(line));
    }

    /// Kills the process and everything it started. Nothing more is heard of it.
    pub fn kill(&mut self) {
        self.phase = Phase::Over;
        self.due = None;
        self.process.end.kill();
        (self.process.socket, self.process.output) = (None, None);
    }

    /// Reaps the process if it has ended; returns whether it has.
    pub fn reap(&mut self) -> bool {
        self.process.end.reap()
    }
}

fn readable<'a>(watched: impl Iterator<Item = BorrowedFd<'a>>) -> Vec<PollFd<'a>> {
    watched
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect()
}

/// Returns a packet's text, cut to what a message may have.
fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text[..text.floor_char_boundary(LONGEST_REASON)].to_owned()
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.listen();
        self.process.end.kill();
        let end = now() + CLOSE_LIMIT;
        // A process that hangs in a driver even then is left to the kernel.
        while !self.process.end.reap() && !self.is_abandoned && now() < end {
            is_readable(&self.process.end.exit, end.saturating_duration_since(now()));
        }
    }
}

/// Lets processes end together: those that are up close what they have, and whoever does not within
/// the limit is killed.
pub fn close_all(workers: impl IntoIterator<Item = Worker>) {
    let mut workers: Vec<_> = workers.into_iter().collect();
    let (mut close, end) = (now() + CLOSE_LIMIT, now() + 2 * CLOSE_LIMIT);
    for worker in &mut workers {
        match worker.phase {
            Phase::Up => worker.close(),
            Phase::Closing => {}
            Phase::Starting | Phase::Over => worker.kill(),
        }
    }
    loop {
        workers.retain_mut(|worker| {
            worker.listen();
            if !worker.process.end.has_come() {
                return true;
            }
            // What it has started may still be there.
            worker.process.end.kill();
            !worker.reap()
        });
        if workers.is_empty() || now() >= end {
            break;
        }
        if now() >= close {
            workers.iter_mut().for_each(Worker::kill);
            close = end;
        }
        let watched = workers
            .iter()
            .flat_map(|worker| worker.process.last_watched());
        let left = timespec(close.saturating_duration_since(now()));
        poll(&mut readable(watched), Some(&left)).ok();
    }
    workers
        .iter_mut()
        .for_each(|worker| worker.is_abandoned = true);
}
