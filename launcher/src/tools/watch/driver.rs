//! The loop of a watch: looks at the folder, waits for the evaluation and for signals, and does what
//! the [`Machine`] decides.

use std::ffi::OsString;
use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use jobs::refusal::Refusal;
use jobs::time::rfc3339;
use report::curve::{Curve, Point, PointState, SCHEMA};
use tokio::process::Child;
use tokio::signal::unix::{Signal, SignalKind, signal as listen};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::say;
use crate::signals::is_ignored;
use crate::tools::print;
use crate::tools::watch::complete::policy_path;
use crate::tools::watch::evaluation::{EvaluationFiles, signal};
use crate::tools::watch::machine::{Action, Event, Machine};
use crate::tools::watch::scan::Scanner;
use crate::tools::watch::template::Template;
use crate::tools::watch::unreadable;

/// Time between two looks at the folder of the checkpoints.
const POLL: Duration = Duration::from_secs(5);

/// What a watch works with.
pub(super) struct Driver {
    pub(super) machine: Machine,
    pub(super) scanner: Scanner,
    pub(super) template: Template,
    pub(super) words: Vec<OsString>,
    pub(super) checkpoints: PathBuf,
    pub(super) output: PathBuf,
    pub(super) jobs_file: PathBuf,
    /// The last curve that was written.
    pub(super) curve: Curve,
    /// Whether the curve could not be written the last time.
    pub(super) is_unwritten: bool,
}

/// How a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchEnd {
    /// There is nothing left to do.
    Over,
    /// A signal of this number ended it.
    Signalled(i32),
}

/// What the loop waits for.
enum Wake {
    Look,
    Ended(io::Result<ExitStatus>),
    Signal(i32),
}

/// An evaluation that runs.
struct Running {
    child: Child,
    files: EvaluationFiles,
}

impl Running {
    /// Stops it in order; a further signal of the user is passed on, which makes it end at once.
    async fn stop(mut self, signals: &mut Signals) {
        signal(&self.child, libc::SIGTERM);
        loop {
            tokio::select! {
                _ = self.child.wait() => return,
                number = signals.recv() => signal(&self.child, number),
            }
        }
    }
}

impl Driver {
    /// Adds what an earlier watch has left on the disk: `watch.json` and run folders.
    pub(super) fn remember(&mut self, now: Instant) {
        for mut point in self.curve.points.clone() {
            let files = EvaluationFiles::new(&self.output, &point.name);
            point.state = match (files.complete_report(), point.state) {
                (Some(_), _) => PointState::Evaluated,
                // A run folder that was removed is to be made again.
                (None, PointState::Evaluated) => PointState::Waiting,
                (None, state) => state,
            };
            self.machine.remember(&point, now);
        }
    }

    /// Runs until there is nothing left to do, or a signal arrives. No evaluation outlives it.
    pub(super) async fn run(&mut self) -> anyhow::Result<WatchEnd> {
        let mut signals = Signals::new()?;
        let mut running = None;
        let end = self.watch(&mut signals, &mut running).await;
        if let Some(running) = running {
            say::info("the watch cannot go on, and stops its evaluation");
            running.stop(&mut signals).await;
        }
        end
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the loop tells the machine the time"
    )]
    async fn watch(
        &mut self,
        signals: &mut Signals,
        running: &mut Option<Running>,
    ) -> anyhow::Result<WatchEnd> {
        let mut looks: Interval = interval(POLL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped_by = None;
        loop {
            let wake = tokio::select! {
                number = signals.recv() => Wake::Signal(number),
                status = ended(running.as_mut()) => Wake::Ended(status),
                _ = looks.tick() => Wake::Look,
            };
            let event = match wake {
                Wake::Look => self.look(),
                Wake::Ended(status) => match running.take() {
                    Some(running) => outcome(&running.files, status),
                    None => continue,
                },
                Wake::Signal(number) => {
                    stopped_by.get_or_insert(number);
                    if let Some(running) = running {
                        signal(&running.child, number);
                    }
                    Event::Stop
                }
            };
            let mut events = vec![event];
            while let Some(event) = events.pop() {
                for action in self.machine.on(event, Instant::now()) {
                    match action {
                        Action::Say(text) => say::info(text),
                        Action::Evaluate(name) => match self.start(&name) {
                            Ok(started) => *running = Some(started),
                            Err(event) => events.push(event),
                        },
                        Action::Finish => {
                            self.write()?;
                            return Ok(stopped_by.map_or(WatchEnd::Over, WatchEnd::Signalled));
                        }
                    }
                }
            }
            if let Err(err) = self.write() {
                self.say_once(&err.downcast()?);
            }
        }
    }

    /// Looks at the folder of the checkpoints.
    fn look(&mut self) -> Event {
        match self.scanner.scan() {
            Ok(scan) => Event::Scanned(scan),
            Err(err) => Event::Unreadable(unreadable(&self.checkpoints, err).to_string()),
        }
    }

    /// Says that the curve cannot be written, which is tried again with the next event.
    fn say_once(&mut self, unwritten: &Refusal) {
        if !std::mem::replace(&mut self.is_unwritten, true) {
            say::warning(format_args!("{unwritten}; it is tried again"));
        }
    }

    /// Starts the evaluation of a checkpoint.
    fn start(&self, name: &str) -> Result<Running, Event> {
        let files = EvaluationFiles::new(&self.output, name);
        if let Some(holder) = jobs::launch::holder(&files.run) {
            return Err(Event::Held(format!("its run folder is in use by {holder}")));
        }
        say::info(format_args!("evaluating {name}"));
        let checkpoint = policy_path(&self.checkpoints.join(name));
        let jobs = self.template.filled(&checkpoint);
        match files.start(&jobs, &self.words) {
            Ok(child) => Ok(Running { child, files }),
            Err(err) => Err(Event::Failed(format!("it cannot be started: {err}"))),
        }
    }

    /// Writes the curve if it has changed, and prints it if a checkpoint was evaluated.
    ///
    /// # Errors
    /// Refuses a curve that cannot be written, and returns the errors of stdout.
    fn write(&mut self) -> anyhow::Result<()> {
        let points = self.points();
        if points == self.curve.points && !self.curve.written.is_empty() {
            return Ok(());
        }
        let evaluated =
            |points: &[Point]| points.iter().filter(|one| one.overall.is_some()).count();
        let is_news = evaluated(&points) > evaluated(&self.curve.points);
        let curve = Curve {
            schema: SCHEMA.to_owned(),
            checkpoints: self.checkpoints.display().to_string(),
            jobs_file: self.jobs_file.display().to_string(),
            jobs_sha256: self.template.sha256.clone(),
            written: rfc3339(SystemTime::now()),
            points,
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

    /// Returns the points of the curve by step, with results from their run folders.
    fn points(&self) -> Vec<Point> {
        let known = |name: &str| self.curve.points.iter().find(|point| point.name == name);
        let mut points = Vec::new();
        for (name, checkpoint) in self.machine.checkpoints() {
            let mut point = Point {
                name: name.to_owned(),
                step: checkpoint.step,
                state: checkpoint.state.of_point(),
                failures: checkpoint.failures,
                reason: checkpoint.reason.clone(),
                run: name.to_owned(),
                ..Point::default()
            };
            match known(name) {
                Some(known) if known.overall.is_some() => {
                    point.overall = known.overall;
                    point.jobs.clone_from(&known.jobs);
                }
                _ if point.state == PointState::Evaluated => {
                    let report = EvaluationFiles::new(&self.output, name).complete_report();
                    report.iter().for_each(|report| point.set_results(report));
                }
                _ => {}
            }
            points.push(point);
        }
        points.sort_by(|one, other| (one.step, &one.name).cmp(&(other.step, &other.name)));
        points
    }
}

/// Returns how an evaluation ended.
fn outcome(files: &EvaluationFiles, status: io::Result<ExitStatus>) -> Event {
    match files.complete_report() {
        Some(_) => Event::Evaluated,
        None => Event::Failed(files.failure(status)),
    }
}

/// Waits for the end of an evaluation; forever if none runs.
async fn ended(running: Option<&mut Running>) -> io::Result<ExitStatus> {
    match running {
        Some(running) => running.child.wait().await,
        None => pending().await,
    }
}

/// The signals that end a watch.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` under `nohup`, which lets a watch survive its terminal.
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: (!is_ignored(libc::SIGHUP))
                .then(|| listen(SignalKind::hangup()))
                .transpose()?,
        })
    }

    /// Returns the number of the next signal.
    async fn recv(&mut self) -> i32 {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => libc::SIGINT,
            _ = self.terminate.recv() => libc::SIGTERM,
            _ = hangup => libc::SIGHUP,
        }
    }
}
