//! The program `eval`: runs the jobs of this rank, one after the other, and then writes the report.
//!
//! ```text
//! args, RankEnv ─► plan.json ─► device ─► store ─► work = assignment or leases, minus journals
//!     each job:  policy, environments, recorder
//!                two groups take turns: new episodes ─► reset; no action chunk left ─► policy;
//!                                       all others ─► step ─► record
//!                ended episode ─► recorder writes it ─► journal line, synced
//! all ranks have arrived ─► gather ─► rank 0 writes the report
//! ```
//! Who calls whom:
//!
//! ```text
//! main ─┬─► rank_setup ─► placement   what is refused, chosen and locked before anything starts
//!       └─► rank ─┬─► rollout         the episodes of one job
//!                 ├─► lease           which episodes this rank may run (also called by rollout)
//!                 └─► monitor         the other ranks, the user, memory and GPU
//! ```

use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use jobs::eval_args::EvalArgs;
use jobs::live::PAGE_VARIABLE;
use jobs::rank_env::FINAL;
use jobs::refusal::{Refusal, Refused};
use tcpstore::StoreError;

use crate::console;
use crate::eval::ledger::Ledger;
use crate::eval::monitor::Monitor;
use crate::eval::monitor::meter::Meter;
use crate::eval::monitor::peers::Peers;
use crate::eval::monitor::screen::Screen;
use crate::eval::monitor::stop::{LiveOrders, StopRequest};
use crate::eval::rank_setup::RankSetup;
use crate::policy::{PolicyError, PolicyThread};
use crate::record::RecordError;

pub mod lease;
mod ledger;
mod monitor;
mod placement;
mod rank;
mod rank_setup;
mod rollout;

/// The program `eval`: parses `words`, its arguments, and runs this rank's share.
pub fn main(words: &[OsString]) -> ExitCode {
    let done = match EvalArgs::read_words(words) {
        Err(Refused::Usage(err)) => {
            // A closed stderr does not change the exit code.
            let _ = err.print();
            return ExitCode::from(u8::try_from(err.exit_code()).unwrap_or(2));
        }
        Err(Refused::Input(refusal)) => Err(Stop::Refused(refusal)),
        Ok(args) => run(args),
    };
    let err = match done {
        Ok(code) => return code,
        Err(err) => err,
    };
    let reason = err.to_string();
    console::error(&reason);
    console::write_error_file(&reason);
    match err {
        Stop::Refused(_) => ExitCode::from(FINAL),
        _ => ExitCode::FAILURE,
    }
}

fn run(args: EvalArgs) -> Result<ExitCode, Stop> {
    console::Style::of(&args, |name| std::env::var(name).ok()).adopt();
    let stop = StopRequest::on_signals().map_err(|err| Stop::Rank(err.to_string()))?;
    let mut setup = RankSetup::new(args)?;
    let peers = Peers::meet(&setup.env)?;
    let lock = setup.join_launch(peers.store.as_ref())?;
    let journal = setup.open_journal()?;
    let screen = Screen::new(&setup.env);
    introduce(&setup, &screen);
    let device = setup.device.device;
    let no_thread = |owner| move |err| Stop::rank(format_args!("no thread for {owner}"), err);
    let inference = PolicyThread::start(device).map_err(no_thread("the policy"))?;
    let meter = Meter::start(device).map_err(no_thread("the meter"))?;
    let launch = setup.env.launch.as_deref();
    let has_page = std::env::var_os(PAGE_VARIABLE).is_some();
    let orders = LiveOrders::new(&setup.folder, launch, has_page);
    let monitor = Monitor::new(peers, screen, stop, orders, meter, lock);
    rank::run(setup, inference, Ledger::new(journal, monitor))
}

/// Opens the log of this rank, and tells the user about its device and its setup.
fn introduce(setup: &RankSetup, screen: &Screen) {
    let log = setup.folder.log(setup.env.rank);
    if let Err(err) = console::log_into(&log) {
        screen.say(&format!("warning: no log in `{}`: {err}", log.display()));
    }
    screen.say(&format!("device {}", setup.device.reason));
    for warning in &setup.device.warnings {
        screen.say(&format!("warning: {warning}"));
    }
    for note in &setup.notes {
        screen.say(note);
    }
}

/// The reason why a rank, or one of its jobs, ends before its work is done.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// A signal or another rank has asked for it.
    #[error("stopped by a signal")]
    Asked,
    /// The job was a single lease, which is another rank's now.
    #[error("another rank has taken it over, because this one made no progress for too long")]
    TakenOver,
    /// Another rank has taken over an episode that is in the dataset and not in the journal: the
    /// job has to open its dataset again.
    #[error("another rank has taken over an episode that this one has recorded")]
    Overtaken,
    /// The job has failed, and may be tried again.
    #[error("{0}")]
    Job(String),
    /// The GPU is lost, so that only a new process can go on.
    #[error("{0}")]
    GpuLost(String),
    /// The rank cannot go on, for example because the store is gone or the disk is full. A restart
    /// may help.
    #[error("{0}")]
    Rank(String),
    /// The command line, the jobs, the run folder or the device cannot be used: a restart would
    /// fail in the same way.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Stop {
    /// Returns the reason for which one job fails.
    pub fn job(reason: impl Display) -> Self {
        Self::Job(reason.to_string())
    }

    /// Returns the reason for which the rank cannot go on: what failed, and why.
    pub fn rank(what: impl Display, err: impl Display) -> Self {
        Self::Rank(format!("{what}: {err}"))
    }

    /// Returns the reason for which the rank cannot go on: a file or folder cannot be written.
    pub fn not_written(path: &Path, err: io::Error) -> Self {
        Self::rank(format_args!("cannot write `{}`", path.display()), err)
    }
}

impl From<PolicyError> for Stop {
    fn from(err: PolicyError) -> Self {
        match err {
            PolicyError::DeviceLost(reason) => Self::GpuLost(reason),
            err => Self::job(err),
        }
    }
}

impl From<RecordError> for Stop {
    fn from(err: RecordError) -> Self {
        Self::job(err)
    }
}

impl From<StoreError> for Stop {
    fn from(err: StoreError) -> Self {
        Self::Rank(err.to_string())
    }
}

#[cfg(test)]
mod tests;
