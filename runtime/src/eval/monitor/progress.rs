//! Shows the progress of a run: rank 0 draws a table for all ranks on a terminal; elsewhere each
//! rank prints a line now and then; Prometheus metrics are served on request.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jobs::layout::RunFolder;
use jobs::rank_env::RankEnv;
use report::Report;
use serde_json::{Value, json};

use crate::clock::now;
use crate::console::{self, Level};
use crate::eval::monitor::exporter::Exporter;
use crate::eval::monitor::heartbeat::Heartbeat;
use crate::eval::monitor::stop::StopRequest;
use crate::eval::monitor::tracking::Tracking;
use crate::eval::monitor::view::snapshot::RunSnapshot;
use crate::eval::monitor::view::{EarlierResults, RunView};

/// Minimum time between two lines of one rank about the same job.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Minimum time between two lines about the whole run.
const SUMMARY_EVERY: Duration = Duration::from_secs(30);

/// Maximum number of ranks in the table.
const ROWS: usize = 16;

/// Shows the progress of a run.
pub struct Progress {
    rank: usize,
    label: String,
    show: Show,
    /// The state of the whole run; only on rank 0.
    view: Option<RunView>,
    told: Instant,
    outputs: Outputs,
}

/// Where the state of the whole run is shown besides the terminal.
#[derive(Default)]
pub struct Outputs {
    /// Prometheus.
    pub exporter: Option<Exporter>,
    /// Experiment trackers.
    pub tracking: Option<Tracking>,
}

enum Show {
    /// Rank 0 on a terminal.
    Table {
        all: MultiProgress,
        lines: Vec<ProgressBar>,
    },
    /// Job, time and steps of the last line.
    Lines {
        last: Option<(String, Instant, u64)>,
    },
    /// Other ranks on a terminal.
    Quiet,
}

impl Progress {
    /// Chooses a table, lines or no output for a rank.
    pub fn new(env: &RankEnv) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let style = console::Style::current();
        let show = match env.rank {
            _ if style.quiet => Show::Quiet,
            _ if !is_terminal || style.json => Show::Lines { last: None },
            0 => Show::Table {
                all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(4)),
                lines: Vec::new(),
            },
            _ => Show::Quiet,
        };
        let label = format!("[rank {}/{}]", env.rank, env.world_size);
        Self {
            rank: env.rank,
            label,
            show,
            view: None,
            told: now(),
            outputs: Outputs::default(),
        }
    }

    /// Sets what is known of the whole run, and where else its state is shown.
    pub fn begin(
        &mut self,
        before: impl FnOnce() -> EarlierResults,
        world_size: usize,
        outputs: Outputs,
    ) {
        if self.rank == 0 {
            self.view = Some(RunView::new(before(), world_size));
            self.outputs = outputs;
        }
    }

    /// Shows progress of this rank.
    pub fn moved(&mut self, beat: &Heartbeat) {
        let Show::Lines { last } = &mut self.show else {
            return;
        };
        let moment = now();
        let (job, since, steps) =
            last.get_or_insert_with(|| (beat.job.clone(), moment, beat.steps));
        let waited = moment.saturating_duration_since(*since);
        if *job != beat.job {
            *last = Some((beat.job.clone(), moment, beat.steps));
        } else if waited >= LINE_EVERY {
            let rate = (beat.steps - *steps) as f64 / waited.as_secs_f64();
            *last = Some((beat.job.clone(), moment, beat.steps));
            self.line(&format!("{}, {rate:.0} steps/s", text(beat)), beat);
        }
    }

    /// Returns whether [`Progress::all`] has an effect.
    pub fn shows_all(&self) -> bool {
        self.view.is_some()
    }

    /// Shows the heartbeats of all ranks, in rank order.
    pub fn all(&mut self, beats: &[Heartbeat]) {
        let Some(view) = &mut self.view else { return };
        let moment = now();
        let snapshot = view.on(beats, moment);
        if let Some(exporter) = &self.outputs.exporter {
            exporter.show(&snapshot);
        }
        let tracking = self.outputs.tracking.as_mut();
        let notes = tracking.map(|tracking| tracking.on(&snapshot, moment));
        notes.iter().flatten().for_each(|note| self.say(note));
        match &mut self.show {
            Show::Table { all, lines } => draw(all, lines, &snapshot.table(ROWS)),
            Show::Lines { .. } if self.told.elapsed() >= SUMMARY_EVERY => {
                self.told = now();
                for line in std::iter::once(&snapshot.summary()).chain(&snapshot.remarks) {
                    console::say(Level::Info, "[all ranks]", line, whole(&snapshot));
                }
            }
            Show::Lines { .. } | Show::Quiet => {}
        }
    }

    /// Shows that a job of this rank ended.
    pub fn job_ended(&mut self, beat: &Heartbeat, took: Duration) {
        if let Show::Lines { last } = &mut self.show {
            *last = None;
        }
        self.line(
            &format!("{} in {:.1} s", text(beat), took.as_secs_f64()),
            beat,
        );
    }

    /// Prints a line for the user, above the table.
    pub fn say(&self, line: &str) {
        let level = if line.starts_with("warning: ") {
            Level::Warning
        } else {
            Level::Info
        };
        if let Show::Table { all, .. } = &self.show {
            console::log(level, line);
            // Ignored: the terminal may be gone.
            let _ = all.println(format!("{} {line}", self.label));
            return;
        }
        console::say(level, &self.label, line, json!({"rank": self.rank}));
    }

    /// Prints the progress of this rank to stderr, or only to the log if rank 0 draws a table.
    fn line(&self, line: &str, beat: &Heartbeat) {
        match &self.show {
            Show::Lines { .. } => {
                console::say(Level::Info, &self.label, line, facts(self.rank, beat))
            }
            Show::Table { .. } | Show::Quiet => console::log(Level::Info, line),
        }
    }

    /// Logs the results to the trackers, and waits for them for a limited time.
    pub fn finish_tracking(&mut self, report: &Report, folder: &RunFolder, stop: &StopRequest) {
        if let Some(tracking) = self.outputs.tracking.take() {
            let notes = tracking.finish(report, folder, stop);
            notes.iter().for_each(|note| self.say(note));
        }
    }

    /// Removes the table before the results are printed.
    pub fn finish(&self) {
        if let Show::Table { all, lines } = &self.show {
            lines.iter().for_each(ProgressBar::finish);
            // Ignored: the terminal may be gone.
            let _ = all.clear();
        }
    }
}

fn draw(all: &MultiProgress, lines: &mut Vec<ProgressBar>, table: &[String]) {
    while lines.len() < table.len() {
        let style =
            ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        lines.push(all.add(ProgressBar::new(1)).with_style(style));
    }
    let none = String::new();
    for (index, line) in lines.iter().enumerate() {
        line.set_message(table.get(index).unwrap_or(&none).clone());
    }
}

fn facts(rank: usize, beat: &Heartbeat) -> Value {
    json!({"rank": rank, "job": beat.job, "done": beat.done, "of": beat.of, "solved": beat.solved, "steps": beat.steps})
}

fn whole(snapshot: &RunSnapshot) -> Value {
    json!({"done": snapshot.done, "expected": snapshot.expected, "solved": snapshot.solved,
           "errors": snapshot.errors, "episodes_per_s": snapshot.rate,
           "left_s": snapshot.left.map(|left| left.as_secs_f64())})
}

fn text(beat: &Heartbeat) -> String {
    match beat.of {
        0 => format!(
            "{}: {} episodes, {} solved",
            beat.job, beat.done, beat.solved
        ),
        of => format!(
            "{}: {}/{of} episodes, {} solved",
            beat.job, beat.done, beat.solved
        ),
    }
}
