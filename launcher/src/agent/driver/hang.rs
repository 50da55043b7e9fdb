//! Hang reports: on request (SIGUSR2), of ranks that are silent (`--hang-timeout`), and of processes
//! that were not done in time (torch's file timer).

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use jobs::layout::RunFolder;
use jobs::live::Pulse;
use jobs::time::now;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Interval;

use crate::agent::attempt::LocalRank;
use crate::agent::driver::LaunchDriver;
use crate::agent::event::{GroupEvent, LaunchEnd};
use crate::failure::Hang;
use crate::hang::OnHang;
use crate::hang::report::{HangReport, reason, some_of};
use crate::hang::timer::Expired;
use crate::hang::watch::{Activity, HangWatch};
use crate::if_any::if_any;
use crate::plan::LaunchPlan;
use crate::process::proc::{self, Process};
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
    /// The processes of ranks that were not done in time, which get their signals after it.
    late: Vec<(RankId, Expired)>,
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

    /// Waits until the report has been made, or until it is time to look at the activity of the
    /// ranks: then it returns none. Cancel-safe.
    pub(super) async fn news(&mut self) -> Option<Written> {
        if let Some(writing) = &mut self.writing {
            let written = writing.await;
            self.writing = None;
            return Some(written.unwrap_or_else(|err| Err(err.into())));
        }
        if_any(self.watch.as_mut().map(|(_, ticks)| ticks.tick())).await;
        None
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

    fn look_for_hangs(&mut self) {
        let activities = self.activities();
        let Some((watch, _)) = &mut self.hangs.watch else {
            return;
        };
        let hung = watch.observe(now(), &activities);
        if hung.is_empty() || self.group.is_stopping() {
            return;
        }
        self.hangs.hung = hung.iter().map(|hung| hung.pid).collect();
        self.explain(&reason(&hung, self.hang_seconds()));
    }

    fn hang_seconds(&self) -> u64 {
        self.round.plan.hang.timeout.unwrap_or_default().as_secs()
    }

    /// Returns what each running rank has done so far.
    fn activities(&self) -> Vec<(RankId, Activity)> {
        let running = self.attempt.running();
        let pids = running.keys().copied().collect();
        let mut cpu: BTreeMap<i32, Duration> = BTreeMap::new();
        for process in proc::of_sessions(&pids) {
            *cpu.entry(process.session).or_default() += process.cpu;
        }
        let activity = |(&pid, rank): (&i32, &&LocalRank)| Activity {
            pid,
            cpu: cpu.get(&pid).copied().unwrap_or_default(),
            written: rank.written(),
            pulse: self.round.pulses.as_ref().and_then(|pulses| {
                let file = pulses.path().join(rank.id().index.to_string());
                Pulse::read(&file, pid.cast_unsigned())
            }),
        };
        let running = running.iter();
        running
            .map(|running| (running.1.id(), activity(running)))
            .collect()
    }

    /// Makes a report of all ranks. If one is being made, they are in it already.
    pub(super) fn explain(&mut self, reason: &str) {
        let running = self.attempt.running();
        if self.hangs.writing.is_some() || running.is_empty() {
            return;
        }
        say::warning(format_args!("{reason}: the stacks of all ranks are read"));
        let mut ranks: Vec<_> = running
            .iter()
            .map(|(pid, rank)| (rank.id(), *pid))
            .collect();
        ranks.sort_unstable();
        let last_lines = ranks.iter().filter_map(|(rank, pid)| {
            let (_, lines) = running[pid].last_lines()?;
            Some((rank.global, lines))
        });
        let report = HangReport {
            title: self.round.plan.title.clone(),
            reason: reason.to_owned(),
            processes: Vec::new(),
            gpus: None,
            last_lines: last_lines.collect(),
        };
        let folder = self.report_folder();
        self.hangs.number += 1;
        let number = self.hangs.number;
        // That may take seconds, while the loop serves the store.
        let writing = spawn_blocking(move || report.write(number, &ranks, &folder));
        self.hangs.writing = Some(writing);
    }

    /// Explains what processes are at that were not done in time, and sends them their signals then.
    pub(super) fn on_timers(&mut self, expired: Vec<Expired>) {
        let (mut reasons, mut late) = (Vec::new(), Vec::new());
        for process in expired {
            let pid = process.pid;
            let Some(rank) = self.rank_with(pid) else {
                if kill(Pid::from_raw(pid), None).is_ok() {
                    say::warning(format_args!(
                        "file timer: a timer of process {pid} has expired, which belongs to no \
                         rank of this launch: nothing is done"
                    ));
                }
                continue;
            };
            reasons.push(format!(
                "a timer of rank {} (process {pid}) has expired: `{}`",
                rank.global,
                process.scopes.join("`, `")
            ));
            late.push((rank, process));
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
        let process = Process::read(pid).filter(|process| !process.is_dead)?;
        Some(self.attempt.running().get(&process.session)?.id())
    }

    /// Sends the signals of expired timers. A process that has ended meanwhile is left out, because
    /// its number may be that of another one.
    fn end_late(&mut self) {
        for (rank, Expired { pid, signal, .. }) in std::mem::take(&mut self.hangs.late) {
            let Some(signal) = signal.filter(|_| self.rank_with(pid) == Some(rank)) else {
                continue;
            };
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
        if let Some(eval) = &self.round.plan.eval {
            return RunFolder::new(&eval.output).logs();
        }
        let of_launch = self.folder.as_ref().map(|folder| folder.path().to_owned());
        of_launch.unwrap_or_else(std::env::temp_dir)
    }

    /// Does what `--on-hang` says to the ranks that hang. One that has ended meanwhile is left out:
    /// its successor is another process.
    fn end_hung(&mut self, report: Option<PathBuf>) -> Vec<GroupEvent> {
        let (then, seconds) = (self.round.plan.hang.then, self.hang_seconds());
        let mut events = Vec::new();
        for pid in std::mem::take(&mut self.hangs.hung) {
            let Some(rank) = self.attempt.running_as(pid) else {
                continue;
            };
            let report = report.clone();
            rank.hang = Some(Hang { seconds, report }).filter(|_| then != OnHang::Report);
            match then {
                OnHang::Report => {}
                OnHang::Abort => events = vec![GroupEvent::Over(LaunchEnd::Failed)],
                OnHang::Restart => rank.signal(libc::SIGKILL),
            }
        }
        if !events.is_empty() {
            say::error("the launch is ended, because ranks hang (--on-hang abort)");
        }
        events
    }
}

/// Returns a folder for the pulses of the ranks (see [`jobs::live`]), if they have one and somebody
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
