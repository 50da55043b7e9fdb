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
use std::process::ExitCode;

use jobs::eval_args::EvalArgs;
use jobs::live::PAGE_VARIABLE;
use jobs::rank_env::FINAL;
use jobs::refusal::Refused;

use crate::console;
use crate::eval::ledger::Ledger;
use crate::eval::monitor::Monitor;
use crate::eval::monitor::meter::Meter;
use crate::eval::monitor::peers::Peers;
use crate::eval::monitor::screen::Screen;
use crate::eval::monitor::stop::{LiveOrders, StopRequest};
use crate::eval::rank_setup::RankSetup;
use crate::eval::stop::Stop;
use crate::policy::PolicyThread;

pub mod lease;
mod ledger;
mod monitor;
mod placement;
mod rank;
mod rank_setup;
mod rollout;
mod stop;

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

#[cfg(test)]
mod tests;
