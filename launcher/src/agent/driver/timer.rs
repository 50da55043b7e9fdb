//! The file timer of a launch: reads what ranks write, and explains and ends those that are not done
//! in time.

use std::future::pending;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use jobs::printable::printable_line;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::select;
use tokio::time::sleep;

use crate::agent::driver::LaunchDriver;
use crate::agent::error::AgentError;
use crate::hang::report::some_of;
use crate::hang::timer::lines::{Cut, MAX_LINE};
use crate::hang::timer::pipe::TimerPipe;
use crate::hang::timer::request::TimerRequest;
use crate::hang::timer::timers::{Expired, Timers};
use crate::plan::LaunchPlan;
use crate::process::sessions;
use crate::rank_id::RankId;
use crate::say;
use crate::signals::names::signal_name;

/// The time between two looks at the clock, which may be set while a timer runs.
const LOOK: Duration = Duration::from_secs(1);

/// Warnings about what ranks write; more are not printed.
const MAX_WARNINGS: usize = 3;

/// The timers of one launch.
#[derive(Debug)]
pub(super) struct FileTimers {
    pipe: TimerPipe,
    timers: Timers,
    warnings: usize,
    /// Whether the pipe can be read.
    is_open: bool,
}

/// A process that was not done in time, and gets a signal once the report has been written.
#[derive(Clone, Debug)]
pub(super) struct TimedOut {
    rank: RankId,
    pid: i32,
    signal: Signal,
}

impl FileTimers {
    /// Creates the pipe, if the environment asks for it.
    pub(super) fn new(plan: &LaunchPlan) -> Result<Option<FileTimers>, AgentError> {
        let Some(timer) = &plan.hang.timer else {
            return Ok(None);
        };
        let pipe = TimerPipe::create(timer.path.as_deref())
            .map_err(|(path, err)| AgentError::Timer { path, err })?;
        Ok(Some(FileTimers {
            pipe,
            timers: Timers::default(),
            warnings: 0,
            is_open: true,
        }))
    }

    /// Returns the path of the pipe.
    pub(super) fn path(&self) -> PathBuf {
        self.pipe.path().to_owned()
    }

    /// Waits for lines, or until a timer has expired; returns the processes of which timers have.
    /// Cancel-safe.
    async fn news(&mut self) -> Vec<Expired> {
        let left = self.timers.next().map(|next| {
            let left = (next - unix_seconds()).clamp(0.0, LOOK.as_secs_f64());
            Duration::from_secs_f64(left)
        });
        let expiry = async {
            match left {
                Some(left) => sleep(left).await,
                None => pending().await,
            }
        };
        let is_open = self.is_open;
        select! {
            cuts = self.pipe.recv(), if is_open => match cuts {
                Ok(cuts) => cuts.into_iter().for_each(|cut| self.on_line(cut)),
                Err(err) => {
                    self.is_open = false;
                    say::warning(format_args!("the file timer ends: its pipe cannot be read: {err}"));
                }
            },
            () = expiry => {}
        }
        self.timers.expired(unix_seconds())
    }

    fn on_line(&mut self, cut: Cut) {
        let taken = match cut {
            Cut::TooLong => Err(format!("a line has more than {MAX_LINE} bytes")),
            Cut::Line(line) => TimerRequest::parse(&line)
                .map_err(|why| format!("`{}`: {why}", printable_line(&text(&line))))
                .and_then(|request| self.start(request)),
        };
        let Err(why) = taken else { return };
        self.warnings += 1;
        if self.warnings <= MAX_WARNINGS {
            say::warning(format_args!("file timer: {why}"));
        }
        if self.warnings == MAX_WARNINGS {
            say::warning("file timer: more of these are not printed");
        }
    }

    fn start(&mut self, request: TimerRequest) -> Result<(), String> {
        if self.timers.on(request.clone()).is_ok() {
            return Ok(());
        }
        self.timers.keep(exists);
        let pid = request.pid;
        self.timers
            .on(request)
            .map_err(|err| format!("process {pid} asks for one more: {err}"))
    }
}

/// Waits for processes of which timers have expired; waits forever if there is no file timer.
/// Cancel-safe.
pub(super) async fn news(timers: &mut Option<FileTimers>) -> Vec<Expired> {
    match timers {
        Some(timers) => timers.news().await,
        None => pending().await,
    }
}

impl LaunchDriver<'_> {
    /// Explains what processes are at that were not done in time.
    pub(super) fn on_timers(&mut self, expired: Vec<Expired>) {
        let late: Vec<(RankId, Expired)> = expired
            .into_iter()
            .filter_map(|process| Some((self.rank_of(process.pid)?, process)))
            .collect();
        if late.is_empty() || self.group.is_stopping() {
            return;
        }
        let named: Vec<String> = late
            .iter()
            .map(|(rank, Expired { pid, scopes, .. })| {
                let (rank, scopes) = (rank.global, scopes.join("`, `"));
                format!("a timer of rank {rank} (process {pid}) has expired: `{scopes}`")
            })
            .collect();
        let signals = late.iter().filter_map(|(rank, process)| {
            Some(TimedOut {
                rank: *rank,
                pid: process.pid,
                signal: Signal::try_from(process.signal?).ok()?,
            })
        });
        let signals = signals.collect();
        self.explain_late(&some_of(named), signals);
    }

    /// Returns the rank whose process this is. Says so if it is somebody else's.
    fn rank_of(&self, pid: i32) -> Option<RankId> {
        let found = self.rank_with(pid);
        if found.is_none() && exists(pid) {
            say::warning(format_args!(
                "file timer: a timer of process {pid} has expired, which belongs to no rank of this \
                 launch: nothing is done"
            ));
        }
        found
    }

    fn rank_with(&self, pid: i32) -> Option<RankId> {
        let running = self.attempt.running();
        let pids = running.iter().map(|(_, pid)| *pid).collect();
        let process = sessions::processes(&pids)
            .into_iter()
            .find(|process| process.pid == pid)?;
        let rank = running.iter().find(|(_, pid)| *pid == process.session)?;
        Some(rank.0)
    }

    /// Sends the signals of expired timers. A process that has ended meanwhile is left out, because
    /// its number may be that of another one.
    pub(super) fn end_late(&self, late: &[TimedOut]) {
        for TimedOut { rank, pid, signal } in late {
            if self.rank_with(*pid) != Some(*rank) {
                continue;
            }
            say::warning(format_args!(
                "process {pid} of rank {} gets {}, because its timer has expired",
                rank.global,
                signal_name(*signal as i32)
            ));
            if let Err(err) = kill(Pid::from_raw(*pid), *signal) {
                say::error(format_args!("process {pid} gets no signal: {err}"));
            }
        }
    }
}

/// Returns whether there is such a process.
fn exists(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

/// The beginning of a line, for a message.
fn text(line: &[u8]) -> String {
    const MOST: usize = 200;
    String::from_utf8_lossy(&line[..line.len().min(MOST)]).into_owned()
}

fn unix_seconds() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
