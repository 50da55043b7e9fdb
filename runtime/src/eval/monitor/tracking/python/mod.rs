//! A tracker by its Python package, in a process of its own: wandb, trackio and mlflow.
//!
//! ```text
//! thread ── start, point, ending ─► rrun_track.py ─► package ─► service or local files
//!        ◄─ ready, link, warning, failed ─┘ └─ stdout and stderr ─► logs/tracker_<name>.log
//! ```
//! One message is under way at a time; others wait in the mailbox.

mod log;
mod packets;

use std::path::PathBuf;
use std::time::Duration;

use jobs::printable::printable_line;
use jobs::secrets::Redaction;
use jobs::tracking::Tracker;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::clock::timespec;
use crate::env::python::process::PythonProcess;
use crate::eval::monitor::meter::OtherProcesses;
use crate::eval::monitor::tracking::mailbox::{Mailbox, Message};
use crate::eval::monitor::tracking::notes::Notes;
use crate::eval::monitor::tracking::python::log::OutputLog;
use crate::eval::monitor::tracking::tracked_run::RunIntroduction;

/// The worker's Python module.
const MODULE: (&str, &str) = ("rrun_track", include_str!("rrun_track.py"));
/// Time in which a process that is done, or has closed its socket, may end by itself.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How often the output of a process is read that has written too much.
const THROTTLE: Duration = Duration::from_millis(200);

/// What a tracker's process is started with.
#[derive(Clone, Debug)]
pub struct PythonTracker {
    /// Which tracker it is.
    pub tracker: Tracker,
    /// The interpreter.
    pub python: PathBuf,
    /// File for its output.
    pub log: PathBuf,
    /// Whether videos are uploaded at the end.
    pub is_uploaded: bool,
    /// Takes its process, which is no environment.
    pub others: OtherProcesses,
}

/// A process, and what it has not answered yet.
struct Link<'t> {
    process: PythonProcess,
    mailbox: &'t Mailbox,
    notes: &'t Notes,
    redaction: Redaction,
    log: OutputLog,
    buffer: Vec<u8>,
    has_warned: bool,
}

/// What a wait is for, besides the end of the process and of the run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Message,
    Answer,
}

/// What a process says.
enum Answer {
    Ready,
    Failed(String),
    /// Its socket is closed, or it has ended.
    Gone,
}

impl PythonTracker {
    /// Starts the process and logs what comes into the mailbox, until the end of the run.
    ///
    /// # Errors
    /// Returns why the process cannot be started, gives up or dies.
    pub fn run(
        &self,
        run: &RunIntroduction,
        mailbox: &Mailbox,
        notes: &Notes,
    ) -> Result<(), String> {
        let label = format!("rrun-track tracker={}", self.tracker.name());
        let process = PythonProcess::start(0, &self.python, &label, &[]);
        let process =
            process.map_err(|err| format!("cannot start `{}`: {err}", self.python.display()))?;
        self.others.add(process.pid());
        let redaction = Redaction::new(environment());
        let mut link = Link {
            process,
            mailbox,
            notes,
            log: OutputLog::new(self.log.clone(), redaction.clone()),
            redaction,
            buffer: Vec::new(),
            has_warned: false,
        };
        link.call(&packets::start(run, self.tracker, &[MODULE]))?;
        while let Some(message) = link.next() {
            let is_last = matches!(message, Message::Ending(_));
            for packet in packets::of(&message, self.is_uploaded) {
                link.call(&packet)?;
            }
            if is_last {
                link.is_over(END_LIMIT);
                break;
            }
        }
        Ok(())
    }
}

/// Returns the variables of this process that are text.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

impl Link<'_> {
    /// Waits for the next message; `None` if the tracker is to end at once. A process that dies
    /// meanwhile is noticed at the next call.
    fn next(&mut self) -> Option<Message> {
        loop {
            self.mailbox.silence();
            if self.mailbox.is_closed() {
                return None;
            }
            if let Some(message) = self.mailbox.take() {
                return Some(message);
            }
            // A socket that is closed would be ready for ever.
            self.wait(Awaited::Message);
            if self.is_over(Duration::ZERO) {
                // The next call says how it ended.
                return self.mailbox.wait();
            }
        }
    }

    /// Sends a packet and waits for the answer.
    fn call(&mut self, packet: &[u8]) -> Result<(), String> {
        match self.process.send(packet) {
            // The process has ended; the wait for its answer finds out how.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(err) => return Err(format!("it takes no message: {err}")),
        }
        loop {
            match self.answer() {
                Some(Answer::Ready) => return Ok(()),
                Some(Answer::Failed(reason)) => return Err(reason),
                Some(Answer::Gone) => return Err(self.ended()),
                None => {}
            }
            self.mailbox.silence();
            if self.mailbox.is_closed() {
                return Err("it has not taken everything in time".to_owned());
            }
            self.wait(Awaited::Answer);
        }
    }

    /// Returns the next answer that ends a call, if it is there.
    fn answer(&mut self) -> Option<Answer> {
        loop {
            let has_ended = self.is_over(Duration::ZERO);
            let packet = match self.process.receive_bytes(&mut self.buffer) {
                None if has_ended => return Some(Answer::Gone),
                None => return None,
                Some(packet) => packet.to_vec(),
            };
            let text = |text: &[u8]| {
                let text = String::from_utf8_lossy(text);
                printable_line(&self.redaction.apply(&text)).into_owned()
            };
            match packet.split_first() {
                None => return Some(Answer::Gone),
                Some((b'R', _)) => return Some(Answer::Ready),
                Some((b'F', reason)) => return Some(Answer::Failed(text(reason))),
                Some((b'L', link)) => self.notes.say(&text(link)),
                Some((b'W', warning)) if !self.has_warned => {
                    self.notes.warn(&text(warning));
                    self.has_warned = true;
                }
                Some(_) => {}
            }
        }
    }

    /// Waits until there is something to do, and reads output.
    fn wait(&mut self, awaited: Awaited) {
        let mut ready = vec![
            PollFd::new(self.mailbox.bell(), PollFlags::IN),
            PollFd::new(&self.process.exit, PollFlags::IN),
        ];
        if awaited == Awaited::Answer {
            ready.push(PollFd::new(&self.process.socket, PollFlags::IN));
        }
        let limit = timespec(THROTTLE);
        let limit = match self.log.is_open() {
            true => {
                ready.push(PollFd::new(&self.process.output, PollFlags::IN));
                None
            }
            false => Some(&limit),
        };
        // An interrupted wait counts as one without events.
        poll(&mut ready, limit).ok();
        self.listen();
    }

    /// Reads what the process has written, so that it does not wait for a full pipe for ever.
    fn listen(&mut self) {
        let (lines, more) = self.process.listen();
        self.log.add(&lines, more);
    }

    /// Returns whether the process ends within `limit`.
    fn is_over(&self, limit: Duration) -> bool {
        let mut ready = [PollFd::new(&self.process.exit, PollFlags::IN)];
        poll(&mut ready, Some(&timespec(limit))).is_ok_and(|count| count > 0)
    }

    fn ended(&mut self) -> String {
        self.is_over(END_LIMIT);
        self.listen();
        let last = self.process.lines.all().pop().unwrap_or_default();
        let ending = self.process.ending();
        match &*printable_line(&self.redaction.apply(&last)) {
            "" => format!("its process {ending}"),
            last => format!("its process {ending}; its last line: {last}"),
        }
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        self.listen();
        // Services of a package may be left over, such as that of wandb.
        self.process.kill();
        if self.is_over(END_LIMIT) {
            self.process.reap();
        }
    }
}
