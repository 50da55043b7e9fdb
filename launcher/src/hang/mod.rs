//! Explains a hang before it is ended: the stacks of all threads of all ranks of this node, grouped,
//! in `hang_<n>.txt`.
//!
//! ```text
//! SIGUSR2 ───────────────────────────┐
//! a timer of torch has expired ──────┤                                            ┌► the timer's signal
//! no progress for --hang-timeout ────┴► capture (ms) ─► trace, group, write (s) ──┴► --on-hang
//!                                       another thread: the launch goes on
//! ```
//! Here are `--hang-timeout` and `--on-hang`, and torch's variables for its file timer.

pub mod groups;
pub mod report;
pub mod timer;
pub mod watch;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Serialize;

use crate::cli::Cli;
use crate::cli::Environment;

/// The variable that asks for the timer.
const ENABLE_TIMER: &str = "TORCHELASTIC_ENABLE_FILE_TIMER";

/// The variable with the path of the pipe, for the launcher and its ranks.
pub const TIMER_FILE: &str = "TORCHELASTIC_TIMER_FILE";

/// When a rank hangs, and what happens then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HangPlan {
    /// How long a rank may be silent; `None` if nobody watches.
    pub timeout: Option<Duration>,
    /// What happens after the report.
    pub then: OnHang,
    /// The timer for processes of ranks that have to be done in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<TimerPlan>,
}

/// torch's file timer, which ranks use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimerPlan {
    /// Path of its named pipe (`TORCHELASTIC_TIMER_FILE`); `None` for a new one.
    pub path: Option<PathBuf>,
}

impl TimerPlan {
    /// Reads the variables as torch's agent does, which takes the exact value `1`.
    fn new(env: &Environment) -> Option<TimerPlan> {
        let is_on = env.get(ENABLE_TIMER).is_some_and(|value| value == "1");
        is_on.then(|| TimerPlan {
            path: env.non_empty(TIMER_FILE).map(PathBuf::from),
        })
    }
}

/// What happens to a launch with a rank that hangs, after the report has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OnHang {
    /// Nothing.
    #[default]
    Report,
    /// The launch fails.
    Abort,
    /// The ranks that hang are killed, so that the failure policy decides.
    Restart,
}

impl HangPlan {
    /// Reads the options and the variables.
    ///
    /// # Errors
    /// Returns an error for a timeout that is not positive, and for `--on-hang` without a timeout.
    pub fn new(cli: &Cli, env: &Environment) -> anyhow::Result<HangPlan> {
        let seconds = |seconds: i64| {
            // Limited to 32 bits, so that a deadline can be computed from it.
            let whole = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            whole.with_context(|| {
                format!("--hang-timeout must be a whole number of seconds > 0, got {seconds}")
            })
        };
        let seconds = cli.hang_timeout.map(seconds).transpose()?;
        ensure!(
            seconds.is_some() || cli.on_hang.is_none(),
            "--on-hang needs --hang-timeout, the time after which a silent rank hangs"
        );
        Ok(HangPlan {
            timeout: seconds.map(|seconds| Duration::from_secs(seconds.into())),
            then: cli.on_hang.unwrap_or_default(),
            timer: TimerPlan::new(env),
        })
    }
}
