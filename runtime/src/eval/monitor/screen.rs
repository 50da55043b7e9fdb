//! Shows the progress of a run on the terminal: rank 0 draws a table for all ranks; without one,
//! each rank prints a line now and then, and rank 0 prints lines about all.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jobs::rank_env::RankEnv;
use serde_json::{Value, json};

use crate::clock::now;
use crate::console::{self, Level};
use crate::eval::monitor::Every;
use crate::eval::monitor::beat::Beat;
use crate::eval::monitor::view::RunSnapshot;

/// Minimum time between two lines of one rank about the same job.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Minimum time between two lines about the whole run.
const SUMMARY_EVERY: Duration = Duration::from_secs(30);

/// Maximum number of ranks in the table.
const ROWS: usize = 16;

/// What the user sees.
pub struct Screen {
    rank: usize,
    label: String,
    show: Show,
    /// When the whole run was told of.
    told: Every,
}

enum Show {
    /// Rank 0 on a terminal: the table is the message of a bar.
    Table(ProgressBar),
    /// Job, time and steps of the last line.
    Lines {
        last: Option<(String, Instant, u64)>,
    },
    /// Other ranks on a terminal.
    Quiet,
}

impl Screen {
    /// Chooses a table, lines or no output for a rank.
    pub fn new(env: &RankEnv) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let style = console::Style::current();
        let show = match env.rank {
            _ if style.quiet => Show::Quiet,
            _ if !is_terminal || style.json => Show::Lines { last: None },
            0 => Show::Table(table()),
            _ => Show::Quiet,
        };
        Self {
            rank: env.rank,
            label: format!("[rank {}/{}]", env.rank, env.world_size),
            show,
            // The first line comes after the first pause.
            told: Every(Some(now())),
        }
    }

    /// Shows progress of this rank.
    pub fn moved(&mut self, beat: &Beat, now: Instant) {
        let Show::Lines { last } = &mut self.show else {
            return;
        };
        let new = || (beat.job.clone(), now, beat.steps);
        let (job, since, steps) = last.get_or_insert_with(new);
        let waited = now.saturating_duration_since(*since);
        let rate = (beat.steps - *steps) as f64 / waited.as_secs_f64();
        let is_same = *job == beat.job;
        if !is_same || waited >= LINE_EVERY {
            *last = Some(new());
        }
        if is_same && waited >= LINE_EVERY {
            self.line(&format!("{}, {rate:.0} steps/s", text(beat)), beat);
        }
    }

    /// Shows the whole run.
    pub fn show(&mut self, snapshot: &RunSnapshot, now: Instant) {
        match &mut self.show {
            Show::Table(bar) => bar.set_message(snapshot.table(ROWS).join("\n")),
            Show::Lines { .. } if self.told.due(SUMMARY_EVERY, now) => {
                for line in std::iter::once(&snapshot.summary()).chain(&snapshot.remarks()) {
                    console::say(Level::Info, "[all ranks]", line, whole(snapshot));
                }
            }
            Show::Lines { .. } | Show::Quiet => {}
        }
    }

    /// Shows that an attempt at a job of this rank has ended.
    pub fn attempt_ended(&mut self, beat: &Beat, took: Duration) {
        if let Show::Lines { last } = &mut self.show {
            *last = None;
        }
        let took = took.as_secs_f64();
        self.line(&format!("{} in {took:.1} s", text(beat)), beat);
    }

    /// Prints a line for the user, above the table.
    pub fn say(&self, line: &str) {
        let level = if line.starts_with("warning: ") {
            Level::Warning
        } else {
            Level::Info
        };
        if let Show::Table(bar) = &self.show {
            console::log(level, line);
            return bar.println(format!("{} {line}", self.label));
        }
        console::say(level, &self.label, line, json!({"rank": self.rank}));
    }

    /// Prints the progress of this rank to stderr, or only to the log if rank 0 draws a table.
    fn line(&self, line: &str, beat: &Beat) {
        match &self.show {
            Show::Lines { .. } => {
                console::say(Level::Info, &self.label, line, facts(self.rank, beat))
            }
            Show::Table(_) | Show::Quiet => console::log(Level::Info, line),
        }
    }

    /// Removes the table before the results are printed.
    pub fn finish(&self) {
        if let Show::Table(bar) = &self.show {
            bar.finish_and_clear();
        }
    }
}

fn table() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let target = ProgressDrawTarget::stderr_with_hz(4);
    ProgressBar::with_draw_target(Some(1), target).with_style(style)
}

fn facts(rank: usize, beat: &Beat) -> Value {
    json!({"rank": rank, "job": beat.job, "done": beat.done, "of": beat.of, "solved": beat.solved, "steps": beat.steps})
}

fn whole(snapshot: &RunSnapshot) -> Value {
    json!({"done": snapshot.done, "expected": snapshot.expected, "solved": snapshot.solved,
           "errors": snapshot.errors, "episodes_per_s": snapshot.rate,
           "left_s": snapshot.left.map(|left| left.as_secs_f64())})
}

fn text(beat: &Beat) -> String {
    let of = match beat.of {
        0 => String::new(),
        of => format!("/{of}"),
    };
    let (job, done, solved) = (&beat.job, beat.done, beat.solved);
    format!("{job}: {done}{of} episodes, {solved} solved")
}
