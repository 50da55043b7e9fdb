//! The event log of a launch, one JSON line per event: `--event-log-handler console` or
//! `json:FILE`.
//!
//! ```text
//! {"name":"torchelastic.worker.status.FAILED","source":"WORKER","timestamp":1795233885.25,
//!  "metadata":{"run_id":"none","global_rank":3,"group_rank":0,"worker_id":"4711",
//!              "role":"default","hostname":"node1",…}}
//! ```
//! For events that torchrun has too, the names, sources and first fields are torchrun's
//! (torch/distributed/elastic/agent/server/api.py, torch 2.11: `_construct_event`), so programs
//! that read torchrun's events find all they expect. The events for restarts and signals, the
//! fields after `duration_ms`, and a timestamp other than 0 are additions.
//!
//! A file is opened for each line and appended to, so the launchers of several nodes may share it,
//! and it may be moved away at any time.

mod line;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use jobs::printable::printable_json;
use serde_json::Value;

use crate::plan::EventLog;
use crate::rank_id::RankId;
use crate::round::Round;
use crate::say;
use crate::supervision::Restart;

/// When the launch began.
static BEGIN: OnceLock<SystemTime> = OnceLock::new();

/// Whether the error about an unwritable file has been printed.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// An event of a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening<'a> {
    /// A rank was started.
    Started(EventRank),
    /// A rank has ended.
    Ended {
        /// The rank.
        who: EventRank,
        /// How it ended.
        end: RankEnding,
        /// The resources that it used, if the kernel reports them.
        usage: Option<Value>,
    },
    /// A rank has failed and will restart alone.
    Restart {
        /// The rank, with its old pid.
        who: EventRank,
        /// Delay and number of the restart.
        restart: Restart,
    },
    /// A rank has failed and will not come back.
    Lost {
        /// The rank, with its old pid.
        who: EventRank,
        /// The reason.
        reason: &'a str,
    },
    /// The nodes have met: for the first time, after a failure, or because nodes came or went.
    Met {
        /// How long the rendezvous took.
        after: Duration,
    },
    /// Global ranks have been assigned, which takes no time after the rendezvous.
    Assigned,
    /// The launcher received a signal.
    Signal {
        /// Name of the signal.
        name: &'a str,
    },
    /// The launch is over.
    Over {
        /// Whether every rank exited with code 0.
        is_success: bool,
    },
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RankEnding {
    /// It exited with code 0.
    Succeeded,
    /// It exited with another code, or by a signal that the launcher had not sent.
    Failed {
        /// The exit code, or the negative number of a signal.
        code: i32,
        /// The contents of its error file.
        error: Option<Value>,
    },
    /// The launcher had told it to end.
    Terminated {
        /// The exit code, or the negative number of a signal.
        code: i32,
    },
}

/// One process of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRank {
    /// The rank.
    pub rank: RankId,
    /// Process id.
    pub pid: i32,
}

/// Records the beginning of the launch, from which `total_run_time` counts.
pub fn begin() {
    let _ = BEGIN.set(SystemTime::now());
}

/// Writes an event to the log that the plan asks for. If the file cannot be written, prints an
/// error, and the launch goes on.
pub fn record(round: &Round<'_>, happening: &Happening<'_>) {
    if round.plan.events == EventLog::None {
        return;
    }
    let line = format!(
        "{}\n",
        printable_json(&line::event(round, happening, SystemTime::now()).to_string())
    );
    match &round.plan.events {
        EventLog::None => {}
        EventLog::Console => say::print(Some(line)),
        EventLog::File(path) => {
            // The error is printed once: a launch has many events, and it affects all of them.
            if let Err(err) = append(path, &line)
                && !IS_TOLD.swap(true, Ordering::Relaxed)
            {
                say::warning(format_args!(
                    "cannot write an event into `{}`: {err}",
                    path.display()
                ));
            }
        }
    }
}

fn append(path: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?
        .write_all(line.as_bytes())
}
