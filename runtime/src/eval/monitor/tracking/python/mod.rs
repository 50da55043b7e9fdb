//! A tracker by its Python package, in a process of its own: wandb, trackio and mlflow.
//!
//! ```text
//! queue ─ point, ending ─► rrun_track.py ─► package ─► service or local files
//!       ◄─ link, warning ─┘ └─ stdout and stderr ─► logs/tracker_<name>.log
//! ```
//! One packet is under way at a time.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use jobs::printable::printable_line;
use jobs::secrets::Redaction;
use jobs::tracking::Tracker;
use serde_json::{Map, Value, json};

use crate::eval::monitor::tracking::TrackedRun;
use crate::eval::monitor::tracking::point::{Point, RunEnding};
use crate::python::{Cause, Loss, Module, Program, Said, Worker, find_interpreter};

/// Maximum number of values in a packet: names have up to 240 bytes, and a packet up to 208 KiB.
const MOST_VALUES: usize = 500;

/// The worker's Python module.
const MODULE: Module = ("rrun_track", include_str!("rrun_track.py"));

/// Maximum number of waiting points: those of 47 minutes or more in which a tracker takes none.
const MOST_POINTS: usize = 512;

/// Maximum number of values in them: about 25 MB, because a value with its name usually has less
/// than 100 bytes.
const MOST_WAITING: usize = MOST_POINTS * MOST_VALUES;

/// The process of a tracker.
pub struct PythonTracker {
    tracker: Tracker,
    /// The process itself.
    pub worker: Worker,
    redaction: Redaction,
    /// Whether videos are uploaded at the end.
    is_uploaded: bool,
    /// What the process has not been sent yet, the oldest first.
    waiting: VecDeque<Point>,
    /// The end of the run, until it is sent.
    ending: Option<Value>,
    /// Number of points that were left out, or parts of them.
    left_out: u64,
    /// Whether the process has answered all packets that it was sent.
    is_free: bool,
    has_warned: bool,
    /// Whether nothing comes after what waits.
    is_last: bool,
}

impl PythonTracker {
    /// Starts the process.
    ///
    /// # Errors
    /// Returns why there is no interpreter or no process.
    pub fn start(run: &TrackedRun<'_>, tracker: Tracker, about: &Value) -> Result<Self, String> {
        let python = run.args.track_python.as_deref();
        let python = python.unwrap_or("python3".as_ref());
        let shown = python.display();
        let found = find_interpreter(&python.to_string_lossy());
        let python = found.map_err(|reason| format!("`{shown}`: {reason}"))?;
        let mut config = about.clone();
        config["tracker"] = tracker.name().into();
        let program = Program {
            python: &python,
            label: &format!("rrun-track tracker={}", tracker.name()),
            variables: &[],
            modules: &[MODULE],
            config,
            stages: 0,
            limit: None,
        };
        let redaction = Redaction::new(environment());
        let mut log = OutputLog::new(run.folder.tracker_log(tracker.name()), redaction.clone());
        let worker = Worker::start(&program, None, Box::new(move |line| log.add(line)));
        let failed = |err| format!("cannot start `{}`: {err}", python.display());
        let worker = worker.map_err(failed)?;
        Ok(Self {
            tracker,
            worker,
            redaction,
            is_uploaded: run.args.track_videos,
            waiting: VecDeque::new(),
            ending: None,
            left_out: 0,
            is_free: false,
            has_warned: false,
            is_last: false,
        })
    }

    /// Adds a point, in place of the oldest ones if too much waits.
    pub fn add(&mut self, point: &Point) {
        let waiting = self.waiting.iter().chain([point]);
        let mut values: usize = waiting.map(|point| point.values.len()).sum();
        while (self.waiting.len() == MOST_POINTS || values > MOST_WAITING)
            && let Some(oldest) = self.waiting.pop_front()
        {
            values -= oldest.values.len();
            self.left_out += 1;
        }
        self.waiting.push_back(point.clone());
    }

    /// Adds the end of the run, after which nothing comes.
    pub fn end(&mut self, ending: &RunEnding, notes: &mut Vec<String>) {
        let mut packet = json!(ending);
        packet["kind"] = "ending".into();
        packet["is_uploaded"] = self.is_uploaded.into();
        (self.ending, self.is_last) = (Some(packet), true);
        let (name, left_out) = (self.tracker.name(), self.left_out);
        if left_out > 0 {
            notes.push(format!(
                "warning: {name} was too slow for {left_out} points"
            ));
        }
    }

    /// Returns whether the process has taken everything, and has been told to end.
    pub fn has_all(&self) -> bool {
        self.worker.is_closing()
    }

    /// Sends what waits and takes what the process says, until `until` or the end of the process.
    /// Returns false at the end of the run; `notes` takes what the user is to be told.
    ///
    /// # Errors
    /// Returns why the process gives up or dies before.
    pub fn go_on(&mut self, until: Instant, notes: &mut Vec<String>) -> Result<bool, String> {
        loop {
            if self.is_free
                && let Some(packet) = next_part(&mut self.waiting).or_else(|| self.ending.take())
            {
                let asked = self.worker.ask(0, packet.to_string().as_bytes());
                asked.map_err(|err| format!("it takes no message: {err}"))?;
                self.is_free = false;
            } else if self.is_free && self.is_last && !self.has_all() {
                self.worker.close();
            }
            let is_closing = self.has_all();
            let name = self.tracker.name();
            match self.worker.wait(until) {
                Ok(None) => return Ok(true),
                Ok(Some(Said::Hello(place))) => {
                    let place: String = serde_json::from_slice(&place).unwrap_or_default();
                    notes.push(format!("{name}: {}", self.shown(&place)));
                    self.is_free = true;
                }
                Ok(Some(Said::Note(warning))) => {
                    if !std::mem::replace(&mut self.has_warned, true) {
                        notes.push(format!("warning: {name}: {}", self.shown(&warning)));
                    }
                }
                Ok(Some(Said::Answer { .. })) => self.is_free = true,
                Ok(Some(said)) => return Err(format!("it answered with {said:?}")),
                Err(_) if is_closing => return Ok(false),
                Err(loss) => return Err(self.ended(&loss)),
            }
        }
    }

    fn shown(&self, text: &str) -> String {
        printable_line(&self.redaction.apply(text)).into_owned()
    }

    /// Returns how the process has ended.
    fn ended(&self, loss: &Loss) -> String {
        let text = self.shown(loss.text.lines().next().unwrap_or_default());
        let last = loss.lines.last().map(|line| self.shown(line));
        match (loss.cause, last) {
            (Cause::Refused, _) => text,
            (Cause::GaveUp(_), _) => format!("it {text}"),
            (Cause::Seen, None) => format!("its process {text}"),
            (Cause::Seen, Some(last)) => format!("its process {text}; its last line: {last}"),
        }
    }
}

/// Returns the variables of this process that are text.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Removes what a packet holds of the first point; one of many values needs several.
fn next_part(points: &mut VecDeque<Point>) -> Option<Value> {
    let point = points.front_mut()?;
    let values = point.values.drain(..point.values.len().min(MOST_VALUES));
    let values: Map<_, _> = values.map(|(name, value)| (name, json!(value))).collect();
    let (step, unix_s) = (point.step, point.unix_s);
    points.pop_front_if(|point| point.values.is_empty());
    Some(json!({"kind": "point", "step": step, "unix_s": unix_s, "values": values}))
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
        let point = Point {
            step: 3,
            unix_s: 1.5,
            values: values.collect(),
        };
        let mut points = VecDeque::from([point]);
        let packets: Vec<_> = std::iter::from_fn(|| next_part(&mut points)).collect();
        assert_eq!(packets.len(), 3);
        let mut sizes = packets.iter().map(|packet| packet.to_string().len());
        assert!(sizes.all(|bytes| bytes < LARGEST_PACKET * 3 / 4));
        let last = &packets[2];
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
