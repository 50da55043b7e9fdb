//! How far a run is: bars on a terminal, drawn by rank 0 for all ranks; a line now and then anywhere else.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jobs::rank_env::RankEnv;
use serde_json::{Value, json};

use crate::eval::beat::Beat;
use crate::eval::console::{self, Level};
use crate::eval::now;

/// At least this long between two lines of one rank about the same job.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows how far a run is.
pub struct Progress {
    rank: usize,
    label: String,
    show: Show,
}

enum Show {
    Bars {
        all: MultiProgress,
        bars: Vec<ProgressBar>,
    },
    Lines {
        last: Option<(String, Instant, u64)>,
    },
    /// On a terminal rank 0 draws for everyone.
    Quiet,
}

impl Progress {
    /// Picks bars, lines or silence for a rank.
    pub fn new(env: &RankEnv) -> Self {
        let show = match (std::io::stderr().is_terminal(), env.rank) {
            (true, 0) => bars(env.world_size),
            (true, _) => Show::Quiet,
            (false, _) => Show::Lines { last: None },
        };
        Self { rank: env.rank, label: format!("[rank {}/{}]", env.rank, env.world_size), show }
    }

    /// This rank moved.
    pub fn moved(&mut self, beat: &Beat) {
        let Show::Lines { last } = &mut self.show else { return };
        let moment = now();
        let (job, since, steps) = last.get_or_insert_with(|| (beat.job.clone(), moment, beat.steps));
        let waited = moment.saturating_duration_since(*since);
        if *job != beat.job {
            *last = Some((beat.job.clone(), moment, beat.steps));
        } else if waited >= LINE_EVERY {
            let rate = (beat.steps - *steps) as f64 / waited.as_secs_f64();
            *last = Some((beat.job.clone(), moment, beat.steps));
            self.line(&format!("{}, {rate:.0} steps/s", text(beat)), beat);
        }
    }

    /// All ranks, by rank.
    pub fn all(&self, beats: &[Beat]) {
        let Show::Bars { bars, .. } = &self.show else { return };
        for (bar, beat) in bars.iter().zip(beats) {
            bar.set_length(beat.of.max(1));
            bar.set_position(beat.done);
            bar.set_message(if beat.arrived { "done".to_owned() } else { text(beat) });
        }
    }

    /// A job of this rank ended.
    pub fn job_ended(&mut self, beat: &Beat, took: Duration) {
        if let Show::Lines { last } = &mut self.show {
            *last = None;
        }
        self.line(&format!("{} in {:.1} s", text(beat), took.as_secs_f64()), beat);
    }

    /// A line that the user should see, above the bars.
    pub fn say(&self, line: &str) {
        let level = if line.starts_with("warning: ") { Level::Warning } else { Level::Info };
        if let Show::Bars { all, .. } = &self.show {
            console::log(level, line);
            // A terminal that is gone needs no line.
            let _ = all.println(format!("{} {line}", self.label));
            return;
        }
        console::say(level, &self.label, line, json!({"rank": self.rank}));
    }

    /// How far this rank is: a line on stderr, or, where rank 0 draws, only in the log.
    fn line(&self, line: &str, beat: &Beat) {
        match &self.show {
            Show::Lines { .. } => console::say(Level::Info, &self.label, line, facts(self.rank, beat)),
            Show::Bars { .. } | Show::Quiet => console::log(Level::Info, line),
        }
    }

    /// Whether [`Progress::all`] is of use.
    pub fn shows_all(&self) -> bool {
        matches!(self.show, Show::Bars { .. })
    }

    /// Takes the bars away before the tables are printed.
    pub fn finish(&self) {
        if let Show::Bars { all, bars } = &self.show {
            bars.iter().for_each(ProgressBar::finish);
            // As above.
            let _ = all.clear();
        }
    }
}

fn bars(world_size: usize) -> Show {
    let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(4));
    let style = ProgressStyle::with_template("{prefix:>8} [{bar:30}] {pos:>5}/{len:<5} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = |rank| all.add(ProgressBar::new(1)).with_style(style.clone()).with_prefix(format!("rank {rank}"));
    let bars = (0..world_size).map(bar).collect();
    Show::Bars { all, bars }
}

fn facts(rank: usize, beat: &Beat) -> Value {
    json!({"rank": rank, "job": beat.job, "done": beat.done, "of": beat.of, "solved": beat.solved, "steps": beat.steps})
}

fn text(beat: &Beat) -> String {
    match beat.of {
        0 => format!("{}: {} episodes, {} solved", beat.job, beat.done, beat.solved),
        of => format!("{}: {}/{of} episodes, {} solved", beat.job, beat.done, beat.solved),
    }
}
