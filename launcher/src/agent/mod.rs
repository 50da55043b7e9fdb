//! The agent of one node: starts the ranks, watches them and ends them.
//!
//! ```text
//! rank exit │ signal │ deadline │ leftovers │ other nodes ─► Event ─group.on─► [Action] ─► join, …
//!        └──────────────────── one select! on one thread ───────────────────────┘
//! ```
//! [`run`] returns when every rank has been reaped, every leftover process has ended, and every log
//! line has been written.

pub mod attempt;
pub mod driver;
pub mod event;
pub mod folder_lock;
pub mod group;
pub mod last_words;
pub mod own_name;
pub mod peers;

use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::agent::driver::LaunchDriver;
use crate::agent::event::LaunchEnd;
use crate::agent::folder_lock::FolderLock;
use crate::events;
use crate::plan::LaunchPlan;
use crate::process::leftover::Leftovers;
use crate::say;
use crate::say::Note;
use crate::signals::LaunchSignals;

/// How long tasks beside the event loop may take after the launch: one may be writing a hang report,
/// another may wait for a name server.
const LAST_TASKS: Duration = Duration::from_secs(2);

/// Launches `plan` on `runtime`, prints its outcome on stderr and returns how it ended. `lock` is
/// taken before ranks are started, unless it is held already. Must be called on the main thread,
/// because the ranks die with the thread that started them.
pub fn launch(
    plan: &LaunchPlan,
    lock: &mut FolderLock,
    runtime: Runtime,
    signals: LaunchSignals,
) -> LaunchEnd {
    events::begin();
    plan.notes.iter().for_each(Note::say);
    own_name::check(plan);
    if let Some(Err(err)) = plan.open_files.map(|limit| limit.raised().apply()) {
        tracing::debug!("the limit on open files stays: {err}");
    }
    let end = runtime.block_on(run_async(plan, lock, Leftovers::adopt(), signals));
    runtime.shutdown_timeout(LAST_TASKS);
    end
}

/// Launches `plan` as [`launch`] does, on the current runtime, which must be single-threaded.
pub async fn run_async(
    plan: &LaunchPlan,
    lock: &mut FolderLock,
    leftovers: Leftovers,
    signals: LaunchSignals,
) -> LaunchEnd {
    match LaunchDriver::new(plan, lock, leftovers, signals) {
        Ok(driver) => driver.run().await,
        Err(err) => {
            say::error(format_args!("{err:#}"));
            LaunchEnd::NotStarted
        }
    }
}

impl LaunchEnd {
    /// Returns torchrun's exit code: 0 for success, 1 for everything else. A signal that is not in
    /// the list of handled signals gives `128 + n`, as a shell reports a process killed by signal
    /// n.
    pub fn exit_code(self) -> ExitCode {
        match self {
            LaunchEnd::Succeeded => ExitCode::SUCCESS,
            LaunchEnd::Killed { signal } => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
            _ => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::Signal;

    use super::*;
    use crate::signals::Caught;
    use crate::tests::plan;

    #[tokio::test]
    async fn a_signal_that_came_before_the_launch_ends_it_before_a_rank_is_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut plan = plan(&["true"], 1);
        plan.logs.dir = Some(folder.path().to_path_buf());
        plan.logs.disabled = false;
        plan.ranks[0].redirect.stdout = true;
        plan.signals.numbers = vec![libc::SIGURG];
        let mut lock = FolderLock::new(&plan);
        let signals = Caught::new(&plan.signals.numbers).with(&plan.signals);
        nix::sys::signal::raise(Signal::SIGURG).expect("our own process");

        let launch = run_async(&plan, &mut lock, Leftovers::default(), signals);
        let end = tokio::time::timeout(Duration::from_secs(60), launch).await;
        let signal = libc::SIGURG;
        assert_eq!(end.expect("in time"), LaunchEnd::Stopped { signal });
        let runs: Vec<_> = std::fs::read_dir(folder.path()).expect("listed").collect();
        let run = runs[0].as_ref().expect("the folder of the run").path();
        let attempts = std::fs::read_dir(run).expect("listed");
        assert_eq!(attempts.count(), 0, "no rank has log files");
    }
}
