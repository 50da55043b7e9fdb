//! Hang reports: on request (SIGUSR2), of ranks that are silent (`--hang-timeout`), and of processes
//! that were not done in time (torch's file timer).

use std::collections::BTreeMap;
use std::fs;
use std::future::pending;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jobs::layout::RunFolder;
use jobs::pulse::Pulse;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Interval;

use crate::agent::attempt::LocalRank;
use crate::agent::driver::LaunchDriver;
use crate::agent::event::{GroupEvent, LaunchEnd};
use crate::failure::Hang;
use crate::hang::plan::OnHang;
use crate::hang::report::{HangReport, reason, some_of};
use crate::hang::timer::{Expired, FileTimer};
use crate::hang::watch::{Activity, HangWatch};
use crate::plan::LaunchPlan;
use crate::process::sessions;
use crate::rank_id::RankId;
use crate::say;
use crate::signals::names::signal_name;

/// The lines of a report for the console, and its path; or why there is none.
type Written = anyhow::Result<(Vec<String>, PathBuf)>;

/// The state of hang reports in one launch.
#[derive(Debug, Default)]
pub struct HangReports {
    watch: Option<(HangWatch, Interval)>,
    /// Number of reports so far.
    number: usize,
    /// The report that is made now.
    writing: Option<JoinHandle<Written>>,
    /// The processes of ranks that hang, to which `--on-hang` happens after that report.
    hung: Vec<i32>,
    /// The processes that were not done in time, which get their signals after it.
    late: Vec<TimedOut>,
}

/// A process that was not done in time, and gets a signal once the report has been written.
#[derive(Clone, Debug)]
struct TimedOut {
    rank: RankId,
    pid: i32,
    signal: Signal,
}

impl HangReports {
    /// Starts to watch, if there is a timeout.
    pub(super) fn new(timeout: Option<Duration>) -> HangReports {
        let watch = timeout.map(|timeout| {
            let watch = HangWatch::new(timeout);
            let ticks = tokio::time::interval(watch.period());
            (watch, ticks)
        });
        HangReports {
            watch,
            ..HangReports::default()
        }
    }

    /// Makes a report by `work`, which may take seconds, beside the loop that serves the store.
    fn begin(&mut self, work: impl FnOnce() -> Written + Send + 'static) {
        self.writing = Some(spawn_blocking(work));
    }

    /// Waits until the report has been made, or until it is time to look at the activity of the
    /// ranks: then it returns none. Cancel-safe.
    pub(super) async fn news(&mut self) -> Option<Written> {
        if let Some(writing) = &mut self.writing {
            let written = writing.await;
            self.writing = None;
            return Some(written.unwrap_or_else(|err| Err(err.into())));
        }
        match &mut self.watch {
            Some((_, ticks)) => {
                ticks.tick().await;
                None
            }
            None => pending().await,
        }
    }
}

impl LaunchDriver<'_> {
    /// Handles news of the hang reports.
    pub(super) fn on_hang_news(&mut self, written: Option<Written>) -> Vec<GroupEvent> {
        let Some(written) = written else {
            self.look_for_hangs();
            return Vec::new();
        };
        let report = match written {
            Ok((lines, path)) => {
                lines.iter().for_each(say::warning);
                let path = fs::canonicalize(&path).unwrap_or(path);
                say::warning(format_args!("all stacks: {}", path.display()));
                Some(path)
            }
            Err(err) => {
                say::warning(format_args!("{err:#}"));
                None
            }
        };
        self.end_late();
        self.end_hung(report)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the loop is where the clock is read"
    )]
    fn look_for_hangs(&mut self) {
        let activities = self.activities();
        let Some((watch, _)) = &mut self.hangs.watch else {
            return;
        };
        let hung = watch.observe(Instant::now(), &activities);
        if hung.is_empty() || self.group.is_stopping() {
            return;
        }
        self.hangs.hung = hung.iter().map(|hung| hung.pid).collect();
        let ranks: Vec<(usize, Option<Pulse>)> = hung
            .into_iter()
            .map(|hung| (hung.rank.global, hung.stands))
            .collect();
        self.explain(&reason(&ranks, self.hang_seconds()));
    }

    fn hang_seconds(&self) -> u64 {
        self.plan.hang.timeout.unwrap_or_default().as_secs()
    }

    /// Returns what each running rank has done so far.
    fn activities(&self) -> Vec<(RankId, Activity)> {
        let running = self.attempt.running();
        let pids = running.iter().map(|(_, pid)| *pid).collect();
        let mut cpu: BTreeMap<i32, Duration> = BTreeMap::new();
        for process in sessions::processes(&pids) {
            *cpu.entry(process.session).or_default() += process.cpu;
        }
        let activity = |rank: RankId, pid: i32| Activity {
            pid,
            cpu: cpu.get(&pid).copied().unwrap_or_default(),
            written: self.attempt.rank(rank.index).map_or(0, LocalRank::written),
            pulse: self.round.pulses.as_ref().and_then(|pulses| {
                let file = pulses.path().join(rank.index.to_string());
                Pulse::read(&file, pid.cast_unsigned())
            }),
        };
        let running = running.into_iter();
        running
            .map(|(rank, pid)| (rank, activity(rank, pid)))
            .collect()
    }

    /// Makes a report of all ranks. If one is being made, they are in it already.
    pub(super) fn explain(&mut self, reason: &str) {
        let running = self.attempt.running();
        if self.hangs.writing.is_some() || running.is_empty() {
            return;
        }
        say::warning(format_args!("{reason}: the stacks of all ranks are read"));
        let last_lines = running.iter().filter_map(|(rank, _)| {
            let (_, lines) = self.attempt.rank(rank.index)?.last_lines()?;
            Some((rank.global, lines))
        });
        let report = HangReport {
            title: self.plan.title.clone(),
            reason: reason.to_owned(),
            processes: Vec::new(),
            gpus: Ok(Vec::new()),
            last_lines: last_lines.collect(),
        };
        let ranks = running.iter();
        let ranks: Vec<(usize, i32)> = ranks.map(|(rank, pid)| (rank.global, *pid)).collect();
        let folder = self.report_folder();
        self.hangs.number += 1;
        let number = self.hangs.number;
        self.hangs
            .begin(move || report.write(number, &ranks, &folder));
    }

    /// Explains what processes are at that were not done in time, and sends them their signals then.
    pub(super) fn on_timers(&mut self, expired: Vec<Expired>) {
        let (mut reasons, mut late) = (Vec::new(), Vec::new());
        for process in expired {
            let (pid, scopes) = (process.pid, process.scopes.join("`, `"));
            let Some(rank) = self.rank_with(pid) else {
                if kill(Pid::from_raw(pid), None).is_ok() {
                    say::warning(format_args!(
                        "file timer: a timer of process {pid} has expired, which belongs to no \
                         rank of this launch: nothing is done"
                    ));
                }
                continue;
            };
            let global = rank.global;
            reasons.push(format!(
                "a timer of rank {global} (process {pid}) has expired: `{scopes}`"
            ));
            let signal = process
                .signal
                .and_then(|signal| Signal::try_from(signal).ok());
            late.extend(signal.map(|signal| TimedOut { rank, pid, signal }));
        }
        if reasons.is_empty() || self.group.is_stopping() {
            return;
        }
        let reason = some_of(reasons);
        if self.hangs.writing.is_some() {
            say::warning(&reason);
        }
        self.hangs.late.extend(late);
        self.explain(&reason);
    }

    /// Returns the rank whose process this is.
    fn rank_with(&self, pid: i32) -> Option<RankId> {
        let running = self.attempt.running();
        let pids = running.iter().map(|(_, pid)| *pid).collect();
        let mut processes = sessions::processes(&pids).into_iter();
        let process = processes.find(|process| process.pid == pid)?;
        let mut running = running.into_iter();
        let (rank, _) = running.find(|(_, pid)| *pid == process.session)?;
        Some(rank)
    }

    /// Sends the signals of expired timers. A process that has ended meanwhile is left out, because
    /// its number may be that of another one.
    fn end_late(&mut self) {
        for TimedOut { rank, pid, signal } in std::mem::take(&mut self.hangs.late) {
            if self.rank_with(pid) != Some(rank) {
                continue;
            }
            let (rank, name) = (rank.global, signal_name(signal as i32));
            say::warning(format_args!(
                "process {pid} of rank {rank} gets {name}, because its timer has expired"
            ));
            if let Err(err) = kill(Pid::from_raw(pid), signal) {
                say::error(format_args!("process {pid} gets no signal: {err}"));
            }
        }
    }

    /// Returns the folder for reports: `logs` of the run folder, else that of the log files.
    fn report_folder(&self) -> PathBuf {
        if let Some(eval) = &self.plan.eval {
            return RunFolder::new(&eval.output).logs();
        }
        let of_launch = self.folder.as_ref().map(|folder| folder.path().to_owned());
        of_launch.unwrap_or_else(std::env::temp_dir)
    }

    /// Does what `--on-hang` says to the ranks that hang. One that has ended meanwhile is left out:
    /// its successor is another process.
    fn end_hung(&mut self, report: Option<PathBuf>) -> Vec<GroupEvent> {
        let mut hung = std::mem::take(&mut self.hangs.hung);
        hung.retain(|pid| self.attempt.is_running(*pid));
        if hung.is_empty() || self.plan.hang.then == OnHang::Report {
            return Vec::new();
        }
        for pid in &hung {
            let (seconds, report) = (self.hang_seconds(), report.clone());
            self.attempt.note_hang(*pid, Hang { seconds, report });
        }
        if self.plan.hang.then == OnHang::Abort {
            say::error("the launch is ended, because ranks hang (--on-hang abort)");
            return vec![GroupEvent::Over(LaunchEnd::Failed)];
        }
        hung.into_iter().for_each(|pid| self.attempt.kill(pid));
        Vec::new()
    }
}

/// Waits for processes of which timers have expired; waits forever if there is no file timer.
/// Cancel-safe.
pub(super) async fn expired(timer: &mut Option<FileTimer>) -> Vec<Expired> {
    match timer {
        Some(timer) => timer.news().await,
        None => pending().await,
    }
}

/// Returns a folder for the pulses of the ranks (see [`jobs::pulse`]), if they have one and somebody
/// watches. It is on a disk of this node, because every rank writes once a second.
pub(super) fn pulses(plan: &LaunchPlan) -> Option<TempDir> {
    if plan.eval.is_none() || plan.hang.timeout.is_none() {
        return None;
    }
    let folder = tempfile::Builder::new().prefix("rrun_pulse_").tempdir();
    folder
        .inspect_err(|err| {
            say::warning(format_args!(
                "ranks are watched by output and CPU time alone, because they cannot tell of their \
                 progress: {err}"
            ));
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_loop_goes_on_while_stacks_are_read() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let mut hangs = HangReports::default();
            let (goes_on, waits) = mpsc::channel();
            hangs.begin(move || {
                waits.recv()?;
                Ok((Vec::new(), PathBuf::from("hang_1.txt")))
            });
            goes_on.send(()).expect("it waits");
            let written = hangs.news().await.expect("a report");
            assert_eq!(written.expect("made").1, PathBuf::from("hang_1.txt"));
        });
    }
}
