//! A tracker by its Python package, in a process of its own: wandb, trackio and mlflow.
//!
//! ```text
//! thread ── point, ending ─► rrun_track.py ─► package ─► service or local files
//!        ◄─ link, warning ─┘ └─ stdout and stderr ─► logs/tracker_<name>.log
//! ```
//! One packet is under way at a time; messages wait in the mailbox.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use jobs::printable::printable_line;
use jobs::secrets::Redaction;
use jobs::tracking::Tracker;
use serde_json::{Map, Value, json};

use crate::eval::monitor::meter::OtherProcesses;
use crate::eval::monitor::tracking::point::Point;
use crate::eval::monitor::tracking::{Mailbox, Message, Notes};
use crate::python::{Cause, Loss, Module, Program, Said, Worker, close_all};

/// Maximum number of values in a packet: names have up to 240 bytes, and a packet up to 208 KiB.
const MOST_VALUES: usize = 500;

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

impl PythonTracker {
    /// Starts the process and logs what comes into the mailbox, until the end of the run.
    ///
    /// # Errors
    /// Returns why the process cannot be started, gives up or dies.
    pub fn run(&self, run: &Value, mailbox: &Mailbox, notes: &Notes) -> Result<(), String> {
        let redaction = Redaction::new(environment());
        let mut worker = self.start(run, redaction.clone())?;
        let shown = |text: &str| printable_line(&redaction.apply(text)).into_owned();
        let (mut is_free, mut has_warned, mut is_last) = (false, false, false);
        let mut packets = VecDeque::new();
        loop {
            match worker.wait(Some(mailbox.inbox.bell()), None) {
                Ok(None) => {}
                Ok(Some(Said::Hello(place))) => {
                    let place: String = serde_json::from_slice(&place).unwrap_or_default();
                    notes.say(&shown(&place));
                    is_free = true;
                }
                Ok(Some(Said::Note(warning))) => {
                    if !std::mem::replace(&mut has_warned, true) {
                        notes.warn(&shown(&warning));
                    }
                }
                Ok(Some(Said::Answer { .. })) => is_free = true,
                Ok(Some(said)) => return Err(format!("it answered with {said:?}")),
                Err(loss) => return Err(ended(&loss, shown)),
            }
            mailbox.inbox.silence();
            match (mailbox.is_closed(), is_free) {
                (true, true) => return Ok(()),
                (true, false) => return Err("it has not taken everything in time".to_owned()),
                (false, true) => {}
                (false, false) => continue,
            }
            if packets.is_empty() && is_last {
                close_all([worker]);
                return Ok(());
            }
            if packets.is_empty()
                && let Some(message) = mailbox.inbox.take_one()
            {
                is_last = matches!(message, Message::Ending(_));
                packets.extend(packets_of(&message, self.is_uploaded));
            }
            if let Some(packet) = packets.pop_front() {
                let asked = worker.ask(0, &packet);
                asked.map_err(|err| format!("it takes no message: {err}"))?;
                is_free = false;
            }
        }
    }

    fn start(&self, run: &Value, redaction: Redaction) -> Result<Worker, String> {
        let mut config = run.clone();
        config["tracker"] = self.tracker.name().into();
        let program = Program {
            python: &self.python,
            label: &format!("rrun-track tracker={}", self.tracker.name()),
            variables: &[],
            modules: &[MODULE],
            config,
            stages: 0,
            limit: None,
        };
        let mut log = OutputLog::new(self.log.clone(), redaction);
        let worker = Worker::start(&program, None, Box::new(move |line| log.add(line)));
        let failed = |err| format!("cannot start `{}`: {err}", self.python.display());
        let worker = worker.map_err(failed)?;
        self.others.add(worker.pid());
        Ok(worker)
    }
}

/// Returns the variables of this process that are text.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Returns how a process has ended.
fn ended(loss: &Loss, shown: impl Fn(&str) -> String) -> String {
    let text = shown(loss.text.lines().next().unwrap_or_default());
    let last = loss.lines.last().map(|line| shown(line));
    match (loss.cause, last) {
        (Cause::Refused, _) => text,
        (Cause::GaveUp(_), _) => format!("it {text}"),
        (Cause::Seen, None) => format!("its process {text}"),
        (Cause::Seen, Some(last)) => format!("its process {text}; its last line: {last}"),
    }
}

/// Returns the packets of a message; a point of many values needs several.
fn packets_of(message: &Message, is_uploaded: bool) -> Vec<Vec<u8>> {
    let packets: Vec<Value> = match message {
        Message::Point(Point {
            step,
            unix_s,
            values,
        }) => {
            let packet = |values: &[(String, f64)]| {
                let values = values
                    .iter()
                    .map(|(name, value)| (name.clone(), json!(value)));
                let values: Map<String, Value> = values.collect();
                json!({"kind": "point", "step": step, "unix_s": unix_s, "values": values})
            };
            values.chunks(MOST_VALUES).map(packet).collect()
        }
        Message::Ending(ending) => {
            let mut packet = json!(ending);
            packet["kind"] = "ending".into();
            packet["is_uploaded"] = is_uploaded.into();
            vec![packet]
        }
    };
    let bytes = packets.iter().map(|packet| packet.to_string().into_bytes());
    bytes.collect()
}

/// Maximum number of bytes that one start adds to a log.
const MOST_BYTES: usize = 1 << 20;

/// Collects the output of a process in a file, without the secrets of its environment.
struct OutputLog {
    path: PathBuf,
    redaction: Redaction,
    /// Created with the first line.
    file: Option<File>,
    bytes: usize,
}

impl OutputLog {
    /// Creates a log that has no file yet.
    fn new(path: PathBuf, redaction: Redaction) -> Self {
        Self {
            path,
            redaction,
            file: None,
            bytes: 0,
        }
    }

    /// Appends a line. Errors are ignored: the log only helps to find out why a tracker failed.
    fn add(&mut self, line: &str) {
        if self.bytes >= MOST_BYTES {
            return;
        }
        let mut text = format!("{}\n", self.redaction.apply(line));
        self.bytes += text.len();
        if self.bytes >= MOST_BYTES {
            text += "rrun: the output is too long, the rest is left out\n";
        }
        if self.file.is_none() {
            let folder = self.path.parent().map(std::fs::create_dir_all);
            let mut open = OpenOptions::new();
            let open = open.append(true).create(true);
            self.file = folder.and_then(|_| open.open(&self.path).ok());
        }
        let file = self.file.as_mut();
        file.map(|file| file.write_all(text.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a socket takes, in `rrun_host.py`.
    const LARGEST_PACKET: usize = 1 << 18;

    #[test]
    fn a_point_of_many_tasks_fits_into_packets() {
        let values =
            (0..1200).map(|task| (format!("tasks/{}{task}", "x".repeat(200)), 0.123456789));
        let point = Message::Point(Point {
            step: 3,
            unix_s: 1.5,
            values: values.collect(),
        });
        let packets = packets_of(&point, false);
        assert_eq!(packets.len(), 3);
        assert!(
            packets
                .iter()
                .all(|packet| packet.len() < LARGEST_PACKET * 3 / 4)
        );
        let last: Value = serde_json::from_slice(&packets[2]).unwrap();
        assert_eq!((&last["step"], &last["kind"]), (&json!(3), &json!("point")));
        assert_eq!(last["values"].as_object().unwrap().len(), 200);
    }

    #[test]
    fn a_log_has_no_secrets_and_a_largest_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/tracker_wandb.log");
        let redaction = Redaction::new([("WANDB_API_KEY".to_owned(), "a-secret".to_owned())]);
        let mut log = OutputLog::new(path.clone(), redaction);
        assert!(!path.exists(), "a tracker that prints nothing has no log");
        log.add("the key is a-secret");
        let line = "x".repeat(2000);
        for _ in 0..1000 {
            log.add(&line);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("the key is ***\n"), "{}", &text[..40]);
        assert!(text.ends_with("\nrrun: the output is too long, the rest is left out\n"));
        assert!(text.len() < MOST_BYTES + 3000);
    }
}
