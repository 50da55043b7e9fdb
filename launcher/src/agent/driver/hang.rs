//! Hang reports: on request (SIGUSR2), and of ranks that are silent (`--hang-timeout`).

use std::collections::BTreeMap;
use std::fs;
use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jobs::layout::RunFolder;
use jobs::pulse::Pulse;
use tokio::task::JoinHandle;
use tokio::time::Interval;

use crate::agent::attempt::LocalRank;
use crate::agent::driver::LaunchDriver;
use crate::agent::driver::timer::TimedOut;
use crate::agent::event::{GroupEvent, LaunchEnd};
use crate::failure::Hang;
use crate::hang::HangReport;
use crate::hang::capture::{CapturedRanks, capture};
use crate::hang::plan::OnHang;
use crate::hang::pulses::PulseFolder;
use crate::hang::reason::reason;
use crate::hang::watch::{Activity, HangWatch};
use crate::plan::LaunchPlan;
use crate::process::sessions;
use crate::rank_id::RankId;
use crate::say;

type Written = Result<(HangReport, PathBuf), (PathBuf, io::Error)>;

/// The state of hang reports in one launch.
#[derive(Debug, Default)]
pub struct HangReports {
    watch: Option<(HangWatch, Interval)>,
    /// Number of reports so far.
    number: usize,
    writing: Option<ReportInProgress>,
    /// Threads that were captured but have not stopped yet, see [`stacks::capture::release`].
    stopping: Vec<i32>,
}

/// A report that is being written.
#[derive(Debug)]
struct ReportInProgress {
    task: JoinHandle<Written>,
    then: AfterReport,
}

/// What follows a report; nothing if it was requested.
#[derive(Debug, Default)]
pub(super) struct AfterReport {
    /// The processes of ranks that hang.
    hung: Vec<i32>,
    /// The processes that were not done in time.
    late: Vec<TimedOut>,
}

/// What a report needs the driver for.
pub(super) enum HangNews {
    /// It is time to look at the activity of the ranks.
    Tick,
    /// The report has been written, or could not be.
    Written {
        /// The report.
        outcome: Box<Written>,
        /// What follows.
        then: AfterReport,
    },
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

    /// Waits for something to do. Cancel-safe.
    pub(super) async fn news(&mut self) -> HangNews {
        if let Some(writing) = &mut self.writing {
            let outcome = (&mut writing.task).await;
            let then = std::mem::take(&mut writing.then);
            self.writing = None;
            let outcome =
                outcome.unwrap_or_else(|err| Err((PathBuf::new(), io::Error::other(err))));
            return HangNews::Written {
                outcome: Box::new(outcome),
                then,
            };
        }
        match &mut self.watch {
            Some((_, ticks)) => {
                ticks.tick().await;
                HangNews::Tick
            }
            None => pending().await,
        }
    }
}

impl LaunchDriver<'_> {
    /// Lets threads go on that stopped too late for a report.
    pub(super) fn release_captured(&mut self) {
        if !self.hangs.stopping.is_empty() {
            let stopping = std::mem::take(&mut self.hangs.stopping);
            self.hangs.stopping = stacks::capture::release(stopping);
        }
    }

    /// Handles news of the hang reports.
    pub(super) fn on_hang_news(&mut self, news: HangNews) -> Vec<GroupEvent> {
        match news {
            HangNews::Tick => {
                self.look_for_hangs();
                Vec::new()
            }
            HangNews::Written { outcome, then } => {
                let report = self.say_report(*outcome);
                self.end_late(&then.late);
                self.end_hung(then.hung, report)
            }
        }
    }

    /// Makes a report on request.
    pub(super) fn explain_on_request(&mut self) {
        self.explain("SIGUSR2 asked for it", AfterReport::default());
    }

    /// Makes a report of processes that were not done in time, and sends them their signals. If a
    /// report is being written, they are in it already.
    pub(super) fn explain_late(&mut self, reason: &str, late: Vec<TimedOut>) {
        if let Some(writing) = &mut self.hangs.writing {
            say::warning(reason);
            writing.then.late.extend(late);
            return;
        }
        let then = AfterReport {
            late,
            ..AfterReport::default()
        };
        self.explain(reason, then);
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
        let seconds = self.plan.hang.timeout.unwrap_or_default().as_secs();
        let ranks: Vec<(usize, Option<Pulse>)> = hung
            .iter()
            .map(|hung| (hung.rank.global, hung.stands.clone()))
            .collect();
        let then = AfterReport {
            hung: hung.into_iter().map(|hung| hung.pid).collect(),
            ..AfterReport::default()
        };
        self.explain(&reason(&ranks, seconds), then);
    }

    /// Returns what each running rank has done so far.
    fn activities(&self) -> Vec<(RankId, Activity)> {
        let running = self.attempt.running();
        let pids = running.iter().map(|(_, pid)| *pid).collect();
        let mut cpu: BTreeMap<i32, Duration> = BTreeMap::new();
        for process in sessions::processes(&pids) {
            *cpu.entry(process.session).or_default() += process.cpu;
        }
        running
            .iter()
            .map(|(rank, pid)| {
                let activity = Activity {
                    pid: *pid,
                    cpu: cpu.get(pid).copied().unwrap_or_default(),
                    written: self.attempt.rank(rank.index).map_or(0, LocalRank::written),
                    pulse: self
                        .round
                        .pulses
                        .as_ref()
                        .and_then(|pulses| pulses.read(rank.index, *pid)),
                };
                (*rank, activity)
            })
            .collect()
    }

    /// Captures all ranks and begins to write a report, unless one is being written.
    fn explain(&mut self, reason: &str, then: AfterReport) {
        let running = self.attempt.running();
        if self.hangs.writing.is_some() || running.is_empty() {
            return;
        }
        say::warning(format_args!("{reason}: the stacks of all ranks are read"));
        let ranks: Vec<(usize, i32)> = running
            .iter()
            .map(|(rank, pid)| (rank.global, *pid))
            .collect();
        let mut processes = capture(&ranks);
        for process in &mut processes {
            self.hangs.stopping.extend(process.take_stopping());
        }
        self.hangs.number += 1;
        let mut report = HangReport::now(self.hangs.number, &self.plan.title, reason);
        report.last_lines = running
            .iter()
            .filter_map(|(rank, _)| {
                let (_, lines) = self.attempt.rank(rank.index)?.last_lines()?;
                Some((rank.global, lines))
            })
            .collect();
        let captured = CapturedRanks { report, processes };
        let folder = self.report_folder();
        let task = tokio::task::spawn_blocking(move || captured.write(&folder));
        self.hangs.writing = Some(ReportInProgress { task, then });
    }

    /// Returns the folder for reports: `logs` of the run folder, else that of the log files.
    fn report_folder(&self) -> PathBuf {
        let of_run = self
            .plan
            .eval
            .as_ref()
            .map(|eval| RunFolder::new(&eval.output).logs());
        let of_launch = || Some(self.folder.as_ref()?.path().to_owned());
        of_run.or_else(of_launch).unwrap_or_else(std::env::temp_dir)
    }

    /// Prints what a report says; returns its path.
    fn say_report(&self, outcome: Written) -> Option<PathBuf> {
        match outcome {
            Ok((report, path)) => {
                for line in report.headlines() {
                    say::warning(line);
                }
                let path = fs::canonicalize(&path).unwrap_or(path);
                say::warning(format_args!("all stacks: {}", path.display()));
                Some(path)
            }
            Err((path, err)) => {
                say::warning(format_args!(
                    "the stacks cannot be written to `{}`: {err}",
                    path.display()
                ));
                None
            }
        }
    }

    /// Does what `--on-hang` says to the ranks that hang. One that has ended meanwhile is left out:
    /// its successor is another process.
    fn end_hung(&mut self, mut hung: Vec<i32>, report: Option<PathBuf>) -> Vec<GroupEvent> {
        hung.retain(|pid| self.attempt.is_running(*pid));
        if self.plan.hang.then != OnHang::Report {
            let seconds = self.plan.hang.timeout.unwrap_or_default().as_secs();
            for pid in &hung {
                let report = report.clone();
                self.attempt.note_hang(*pid, Hang { seconds, report });
            }
        }
        match self.plan.hang.then {
            _ if hung.is_empty() => Vec::new(),
            OnHang::Report => Vec::new(),
            OnHang::Abort => {
                say::error("the launch is ended, because ranks hang (--on-hang abort)");
                vec![GroupEvent::Over(LaunchEnd::Failed)]
            }
            OnHang::Restart => {
                for pid in hung {
                    self.attempt.kill(pid);
                }
                Vec::new()
            }
        }
    }
}

/// Returns the folder for the pulses of the ranks, if they have one and somebody watches.
pub(super) fn pulses(plan: &LaunchPlan) -> Option<PulseFolder> {
    if plan.eval.is_none() || plan.hang.timeout.is_none() {
        return None;
    }
    PulseFolder::create()
        .inspect_err(|err| {
            say::warning(format_args!(
                "ranks are watched by output and CPU time alone, because they cannot tell of their \
                 progress: {err}"
            ));
        })
        .ok()
}
