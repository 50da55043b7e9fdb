//! The loop of a watch: looks at the folder, waits for the evaluation and for signals, and does what
//! the [`Machine`] decides. An evaluation is `rrun … eval` in a process group of its own, with a
//! run folder, a jobs file and a log for each checkpoint.
//!
//! ```text
//! <output>/<checkpoint>/             run folder, resumed if it is there
//!          <checkpoint>.jobs.json    the jobs with this checkpoint
//!          <checkpoint>.log          what the evaluation printed
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::future::pending;
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

use jobs::layout::{RunFolder, write_whole};
use jobs::refusal::Refusal;
use jobs::time::{now, rfc3339};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use report::Report;
use report::curve::{Curve, Point, PointState};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::{MissedTickBehavior, interval};

use crate::logs::lines::last_lines;
use crate::plan::{Sender, SignalPlan};
use crate::say;
use crate::signals::{Caught, Signals};
use crate::tools::watch::machine::{Action, Event, Machine};
use crate::tools::watch::scan::{Scanner, policy_path};
use crate::tools::watch::template::Template;
use crate::tools::{LAST_LINES, evaluation, print};

/// Time between two looks at the folder of the checkpoints.
const POLL: Duration = Duration::from_secs(5);

/// Number of letters of an evaluation's last line that are kept.
const LAST_LINE: usize = 300;

/// What a watch works with.
pub(super) struct Driver {
    pub(super) machine: Machine,
    pub(super) scanner: Scanner,
    pub(super) template: Template,
    pub(super) words: Vec<OsString>,
    pub(super) output: PathBuf,
    /// The last curve that was written.
    pub(super) curve: Curve,
    /// Whether the curve could not be written the last time.
    pub(super) is_unwritten: bool,
}

/// An evaluation that runs.
struct Running {
    child: Child,
    files: EvaluationFiles,
}

impl Running {
    /// Stops it in order; a further signal of the user is passed on, which makes it end at once.
    async fn stop(mut self, signals: &mut Signals) {
        self.signal(libc::SIGTERM);
        loop {
            tokio::select! {
                _ = self.child.wait() => return,
                signal = signals.recv() => self.signal(signal.number),
            }
        }
    }

    fn signal(&self, number: i32) {
        let group = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        if let (Some(group), Ok(signal)) = (group, Signal::try_from(number)) {
            // It may have ended by itself.
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }
}

impl Driver {
    /// Adds what an earlier watch has left on the disk: `watch.json` and run folders.
    pub(super) fn remember(&mut self, now: Instant) {
        for mut point in self.curve.points.clone() {
            let files = EvaluationFiles::new(&self.output, &point.name);
            match files.complete_report() {
                Some(report) => {
                    point.state = PointState::Evaluated;
                    point.set_results(&report);
                }
                // A run folder that was removed is to be made again.
                None if point.state == PointState::Evaluated => {
                    point.state = PointState::Waiting;
                }
                None => {}
            }
            self.machine.remember(point, now);
        }
    }

    /// Runs until there is nothing left to do, or a signal arrives, whose number is returned. No
    /// evaluation outlives it.
    pub(super) async fn run(&mut self) -> anyhow::Result<Option<i32>> {
        let plan = SignalPlan {
            sender: Sender::Anyone,
            spec: String::new(),
            // Also if the parent ignored them, as a shell does for what it starts with `&`.
            numbers: vec![libc::SIGINT, libc::SIGTERM],
        };
        let mut signals = Caught::new(&plan.numbers).with(&plan).ends;
        let mut running = None;
        let end = self.watch(&mut signals, &mut running).await;
        if let Some(running) = running {
            say::info("the watch cannot go on, and stops its evaluation");
            running.stop(&mut signals).await;
        }
        end
    }

    async fn watch(
        &mut self,
        signals: &mut Signals,
        running: &mut Option<Running>,
    ) -> anyhow::Result<Option<i32>> {
        let mut looks = interval(POLL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped_by = None;
        loop {
            let event = tokio::select! {
                signal = signals.recv() => {
                    stopped_by.get_or_insert(signal.number);
                    if let Some(running) = running {
                        running.signal(signal.number);
                    }
                    Event::Stop
                }
                status = ended(running.as_mut()) => match running.take() {
                    Some(running) => self.outcome(&running.files, status),
                    None => continue,
                },
                _ = looks.tick() => match self.scanner.scan() {
                    Ok(scan) => Event::Scanned(scan),
                    Err(err) => Event::Unreadable(err.to_string()),
                },
            };
            let mut events = vec![event];
            while let Some(event) = events.pop() {
                for action in self.machine.on(event, now()) {
                    match action {
                        Action::Say(text) => say::info(text),
                        Action::Evaluate(name) => match self.start(&name) {
                            Ok(started) => *running = Some(started),
                            Err(event) => events.push(event),
                        },
                        Action::Finish => {
                            self.write()?;
                            return Ok(stopped_by);
                        }
                    }
                }
            }
            if let Err(err) = self.write() {
                let unwritten: Refusal = err.downcast()?;
                if !std::mem::replace(&mut self.is_unwritten, true) {
                    say::warning(format_args!("{unwritten}; it is tried again"));
                }
            }
        }
    }

    /// Starts the evaluation of a checkpoint.
    fn start(&self, name: &str) -> Result<Running, Event> {
        let files = EvaluationFiles::new(&self.output, name);
        if let Some(holder) = jobs::launch::holder(&files.run) {
            return Err(Event::Held(format!("its run folder is in use by {holder}")));
        }
        say::info(format_args!("evaluating {name}"));
        // An evaluation that is resumed elsewhere finds its checkpoint.
        let checkpoint = absolute(policy_path(&self.scanner.folder.join(name)));
        let started = checkpoint.and_then(|checkpoint| {
            let jobs = self.template.filled(&checkpoint);
            files.start(&jobs, &self.words)
        });
        match started {
            Ok(child) => Ok(Running { child, files }),
            Err(err) => Err(Event::Failed(format!("it cannot be started: {err}"))),
        }
    }

    /// Returns how an evaluation ended, whose results the curve gets.
    fn outcome(&mut self, files: &EvaluationFiles, status: io::Result<ExitStatus>) -> Event {
        let Some(report) = files.complete_report() else {
            return Event::Failed(files.failure(status));
        };
        if let Some(evaluated) = self.machine.running() {
            evaluated.point.set_results(&report);
        }
        Event::Evaluated
    }

    /// Writes the curve if it has changed, and prints it if a checkpoint was evaluated.
    ///
    /// # Errors
    /// Refuses a curve that cannot be written, and returns the errors of stdout.
    fn write(&mut self) -> anyhow::Result<()> {
        let points = self.machine.points();
        if points == self.curve.points && !self.curve.written.is_empty() {
            return Ok(());
        }
        let evaluated =
            |points: &[Point]| points.iter().filter(|one| one.overall.is_some()).count();
        let is_news = evaluated(&points) > evaluated(&self.curve.points);
        let curve = Curve {
            written: rfc3339(SystemTime::now()),
            points,
            ..self.curve.clone()
        };
        curve.write(&self.output).map_err(|err| {
            let path = self.output.join("watch.json");
            let place = format_args!("cannot write the curve, `{}`", path.display());
            Refusal::at(place, err)
        })?;
        self.curve = curve;
        self.is_unwritten = false;
        if is_news {
            print(self.curve.table().trim_end())?;
        }
        Ok(())
    }
}

/// Waits for the end of an evaluation; forever if none runs.
async fn ended(running: Option<&mut Running>) -> io::Result<ExitStatus> {
    match running {
        Some(running) => running.child.wait().await,
        None => pending().await,
    }
}

/// The files of a checkpoint's evaluation.
#[derive(Clone, Debug)]
struct EvaluationFiles {
    run: RunFolder,
    jobs: PathBuf,
    log: PathBuf,
}

impl EvaluationFiles {
    fn new(output: &Path, name: &str) -> Self {
        Self {
            run: RunFolder::new(&output.join(name)),
            jobs: output.join(format!("{name}.jobs.json")),
            log: output.join(format!("{name}.log")),
        }
    }

    /// Returns the report, if every episode is in it.
    fn complete_report(&self) -> Option<Report> {
        Report::read(&self.run).filter(Report::complete)
    }

    /// Starts the evaluation of these jobs, or goes on with it.
    fn start(&self, jobs: &Value, words: &[OsString]) -> io::Result<Child> {
        write_whole(&self.jobs, &serde_json::to_vec_pretty(jobs)?)?;
        let log = File::create(&self.log)?;
        let mut command = Command::from(evaluation::asked(words)?);
        command
            .arg("--jobs")
            .arg(&self.jobs)
            .arg("--output")
            .arg(self.run.root());
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // Signals of the terminal reach the watch alone, which passes them on.
        command.process_group(0);
        // The watch stops it in order; this is for a panic.
        command.kill_on_drop(true);
        command.spawn()
    }

    /// Returns why there is no complete report.
    fn failure(&self, status: io::Result<ExitStatus>) -> String {
        let ended = match status {
            Ok(status) if status.success() => "its report is not complete".to_owned(),
            Ok(status) => status.to_string(),
            Err(err) => err.to_string(),
        };
        let report = Report::read(&self.run);
        let told = report.and_then(|report| report.failures.first().cloned());
        let lines = last_lines(&self.log, LAST_LINES).unwrap_or_default();
        let error = lines.iter().rfind(|line| line.contains("error:"));
        let reason = told
            .map(|failure| failure.reason)
            .or(error.or(lines.last()).cloned())
            .unwrap_or_default();
        let last: String = reason.chars().take(LAST_LINE).collect();
        format!("{last} ({ended}; see {})", self.log.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failure_is_the_last_line_that_says_something() {
        let dir = tempfile::tempdir().unwrap();
        let files = EvaluationFiles::new(dir.path(), "step_1");
        for (log, reason) in [
            ("loads\nerror: no GPU\nends\n", "error: no GPU"),
            ("loads\nends\n\n \n", "ends"),
            (&format!("{}\n", "x".repeat(20_000)), &"x".repeat(LAST_LINE)),
        ] {
            std::fs::write(&files.log, log).unwrap();
            let told = files.failure(Err(io::Error::other("lost")));
            let wanted = format!("{reason} (lost; see {})", files.log.display());
            assert_eq!(told, wanted);
        }
    }
}
