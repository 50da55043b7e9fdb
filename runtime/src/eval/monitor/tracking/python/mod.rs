//! A tracker by its Python package, in a process of its own: wandb, trackio and mlflow.
//!
//! ```text
//! thread ── point, ending ─► rrun_track.py ─► package ─► service or local files
//!        ◄─ link, warning ─┘ └─ stdout and stderr ─► logs/tracker_<name>.log
//! ```
//! One message is under way at a time; others wait in the mailbox.

mod log;
mod packets;

use std::path::PathBuf;

use jobs::printable::printable_line;
use jobs::secrets::Redaction;
use jobs::tracking::Tracker;

use crate::eval::monitor::meter::OtherProcesses;
use crate::eval::monitor::tracking::mailbox::{Mailbox, Message};
use crate::eval::monitor::tracking::notes::Notes;
use crate::eval::monitor::tracking::python::log::OutputLog;
use crate::eval::monitor::tracking::tracked_run::RunIntroduction;
use crate::python::{Cause, Loss, Module, Program, Said, Worker, close_all};

/// The worker's Python module.
const MODULE: Module = ("rrun_track", include_str!("rrun_track.py"));

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

/// A process, and who hears of it.
struct Link<'t> {
    worker: Worker,
    mailbox: &'t Mailbox,
    notes: &'t Notes,
    redaction: Redaction,
    has_warned: bool,
    /// How it ended, if it has, until a call is told.
    lost: Option<Loss>,
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
        let program = Program {
            python: &self.python,
            label: &format!("rrun-track tracker={}", self.tracker.name()),
            variables: &[],
            modules: &[MODULE],
            config: packets::start(run, self.tracker),
            stages: 0,
        };
        let redaction = Redaction::new(environment());
        let mut log = OutputLog::new(self.log.clone(), redaction.clone());
        let worker = Worker::start(&program, None, Box::new(move |line| log.add(line)));
        let worker =
            worker.map_err(|err| format!("cannot start `{}`: {err}", self.python.display()))?;
        self.others.add(worker.pid());
        let mut link = Link {
            worker,
            mailbox,
            notes,
            redaction,
            has_warned: false,
            lost: None,
        };
        match link.said()? {
            Said::Hello(place) => {
                let place: String = serde_json::from_slice(&place).unwrap_or_default();
                notes.say(&link.text(&place));
            }
            _ => return Err("it does not say where the run is".to_owned()),
        }
        while let Some(message) = link.message() {
            let is_last = matches!(message, Message::Ending(_));
            for packet in packets::of(&message, self.is_uploaded) {
                link.call(&packet)?;
            }
            if is_last {
                close_all([link.worker]);
                return Ok(());
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
    fn message(&mut self) -> Option<Message> {
        loop {
            self.mailbox.silence();
            if self.mailbox.is_closed() {
                return None;
            }
            if let Some(message) = self.mailbox.take() {
                return Some(message);
            }
            if let Err(loss) = self.worker.wait(Some(self.mailbox.bell()), None) {
                self.lost = Some(loss);
                return self.mailbox.wait();
            }
        }
    }

    /// Sends a packet and waits for the answer.
    fn call(&mut self, packet: &[u8]) -> Result<(), String> {
        if let Some(loss) = self.lost.take() {
            return Err(self.ended(&loss));
        }
        let asked = self.worker.ask(0, packet);
        asked.map_err(|err| format!("it takes no message: {err}"))?;
        match self.said()? {
            Said::Answer { .. } => Ok(()),
            said => Err(format!("it answered with {said:?}")),
        }
    }

    /// Waits for what the process says. It may take as long as the run.
    fn said(&mut self) -> Result<Said, String> {
        loop {
            match self.worker.wait(Some(self.mailbox.bell()), None) {
                Ok(Some(Said::Note(warning))) if !self.has_warned => {
                    self.notes.warn(&self.text(&warning));
                    self.has_warned = true;
                }
                Ok(Some(Said::Note(_))) => {}
                Ok(Some(said)) => return Ok(said),
                Ok(None) => {}
                Err(loss) => return Err(self.ended(&loss)),
            }
            self.mailbox.silence();
            if self.mailbox.is_closed() {
                return Err("it has not taken everything in time".to_owned());
            }
        }
    }

    fn ended(&self, loss: &Loss) -> String {
        let text = self.text(loss.text.lines().next().unwrap_or_default());
        let last = loss.lines.last().map(|line| self.text(line));
        match (loss.cause, last) {
            (Cause::Refused, _) => text,
            (Cause::GaveUp(_), _) => format!("it {text}"),
            (Cause::Seen, None) => format!("its process {text}"),
            (Cause::Seen, Some(last)) => format!("its process {text}; its last line: {last}"),
        }
    }

    /// Returns a text for the user, without secrets.
    fn text(&self, text: &str) -> String {
        printable_line(&self.redaction.apply(text)).into_owned()
    }
}
