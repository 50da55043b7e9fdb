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
pub mod error;
pub mod event;
pub mod folder_lock;
pub mod group;
pub mod last_words;
pub mod own_name;
pub mod peers;

use std::process::ExitCode;
use std::time::Duration;

use jobs::error_chain::chain;
use tokio::runtime::Runtime;

use crate::agent::driver::LaunchDriver;
use crate::agent::event::LaunchEnd;
use crate::agent::folder_lock::FolderLock;
use crate::events;
use crate::plan::LaunchPlan;
use crate::process::leftover::Leftovers;
use crate::say;
use crate::say::note::Note;
use crate::signals::LaunchSignals;

/// How long tasks beside the event loop may take after the launch: one may be writing a hang report,
/// another may wait for a name server.
const LAST_TASKS: Duration = Duration::from_secs(2);

/// Launches `plan` on `runtime`, prints its outcome on stderr and returns how it ended. `lock` is
/// taken before ranks are started, unless it is held already. Must be called on the main thread,
/// because the ranks die with the thread that started them.
pub fn launch(
    plan: &LaunchPlan,
    lock: &FolderLock,
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
    lock: &FolderLock,
    leftovers: Leftovers,
    signals: LaunchSignals,
) -> LaunchEnd {
    match LaunchDriver::new(plan, lock, leftovers, signals) {
        Ok(driver) => driver.run().await,
        Err(err) => {
            say::error(chain(&err));
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
            LaunchEnd::LeftOut
            | LaunchEnd::Failed
            | LaunchEnd::NotStarted
            | LaunchEnd::Stopped { .. } => ExitCode::FAILURE,
            LaunchEnd::Killed { signal } => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::fs;
    use std::path::{Path, PathBuf};

    use nix::sys::signal::Signal;

    use super::*;
    use crate::hang::plan::HangPlan;
    use crate::plan::event_log::EventLog;
    use crate::plan::{FailurePolicy, LogPlan, RankPlan, Sender, SignalPlan, StorePlan, Streams};
    use crate::signals::Caught;

    /// Returns the plan of `nproc` ranks with default options.
    pub(crate) fn plan(argv: &[&str], nproc: usize) -> LaunchPlan {
        let rank = |local_rank: usize| RankPlan {
            local_rank,
            argv: argv.iter().map(OsString::from).collect(),
            env: BTreeMap::from([("LOCAL_RANK".to_owned(), local_rank.to_string())]),
            redirect: Streams::default(),
            tee: Streams::default(),
            cpus: None,
            shown: true,
        };
        LaunchPlan {
            nnodes: 1,
            run_id: "none".to_owned(),
            role: "default".to_owned(),
            failure_policy: FailurePolicy::Torchrun,
            max_restarts: 0,
            shutdown_timeout: Duration::from_secs(30),
            hang: HangPlan::default(),
            store: StorePlan {
                master_addr: "127.0.0.1".to_owned(),
                port: None,
                may_move: false,
            },
            rendezvous: None,
            // This must not be a signal that ends the test process.
            signals: SignalPlan {
                sender: Sender::Anyone,
                spec: "SIGUSR2".to_owned(),
                numbers: vec![libc::SIGUSR2],
            },
            logs: LogPlan {
                dir: None,
                disabled: true,
                duplicate_stdout: Vec::new(),
                duplicate_stderr: Vec::new(),
                prefix_template: None,
            },
            title: "test".to_owned(),
            env: BTreeMap::new(),
            ranks: (0..nproc).map(rank).collect(),
            open_files: None,
            events: EventLog::None,
            reports_usage: false,
            is_built_in: false,
            notes: Vec::new(),
            model_server: None,
            serve: None,
            eval: None,
        }
    }

    fn sh(script: &str, nproc: usize) -> LaunchPlan {
        plan(&["/bin/sh", "-c", script], nproc)
    }

    /// Redirects the ranks' streams to files below `dir`, with nothing on the console.
    fn logged(mut plan: LaunchPlan, dir: &Path) -> LaunchPlan {
        plan.logs.dir = Some(dir.to_path_buf());
        plan.logs.disabled = false;
        for rank in &mut plan.ranks {
            rank.redirect = Streams {
                stdout: true,
                stderr: true,
            };
        }
        plan
    }

    fn launched(plan: &LaunchPlan) -> LaunchEnd {
        launched_after(plan, || ())
    }

    /// Launches a plan after something that happens when signals have their handlers already.
    fn launched_after(plan: &LaunchPlan, first: impl FnOnce()) -> LaunchEnd {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let lock = FolderLock::new(plan);
        let limit = Duration::from_secs(60);
        runtime
            .block_on(async {
                let signals = Caught::new(&plan.signals.numbers).with(&plan.signals);
                first();
                let launch = run_async(plan, &lock, Leftovers::by_session(), signals);
                tokio::time::timeout(limit, launch).await
            })
            .expect("it ends in time")
    }

    /// Returns the only entry of a folder.
    fn only(dir: &Path) -> PathBuf {
        let entries: Vec<PathBuf> = fs::read_dir(dir)
            .expect("listed")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries[0].clone()
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder")
    }

    #[test]
    fn ranks_that_exit_with_zero_succeed() {
        assert_eq!(launched(&sh("exit 0", 3)), LaunchEnd::Succeeded);
    }

    #[test]
    fn a_signal_that_came_before_the_launch_ends_it_before_a_rank_is_started() {
        let folder = folder();
        let mut plan = logged(sh("exit 0", 1), folder.path());
        plan.signals.numbers = vec![libc::SIGURG];
        let end = launched_after(&plan, || {
            nix::sys::signal::raise(Signal::SIGURG).expect("our own process");
        });
        let signal = libc::SIGURG;
        assert_eq!(end, LaunchEnd::Stopped { signal });
        let attempts = fs::read_dir(only(folder.path())).expect("listed");
        assert_eq!(attempts.count(), 0, "no rank has log files");
    }

    #[test]
    fn one_failure_ends_ranks_that_would_run_on() {
        assert_eq!(
            launched(&sh("[ $RANK = 1 ] && exit 5; exec sleep 100", 3)),
            LaunchEnd::Failed
        );
    }

    #[test]
    fn a_rank_that_ignores_sigterm_is_killed_after_the_grace() {
        let folder = folder();
        let ready = folder.path().join("ready").display().to_string();
        let script = "if [ $RANK = 1 ]; then while [ ! -e $READY ]; do sleep 0.01; done; exit 5; fi
             trap '' TERM; : > $READY; while :; do sleep 1; done";
        let mut plan = sh(script, 2);
        plan.env.insert("READY".to_owned(), ready);
        plan.shutdown_timeout = Duration::from_millis(200);
        assert_eq!(launched(&plan), LaunchEnd::Failed);
    }

    #[test]
    fn a_program_that_does_not_exist_is_not_started() {
        assert_eq!(launched(&plan(&["/nonexistent"], 2)), LaunchEnd::NotStarted);
    }

    #[test]
    fn a_later_rank_that_cannot_start_ends_the_earlier_ones() {
        let mut plan = sh("exec sleep 100", 2);
        plan.ranks[1].argv = vec![OsString::from("/nonexistent")];
        assert_eq!(launched(&plan), LaunchEnd::NotStarted);
    }

    #[test]
    fn every_attempt_has_its_folder_and_number() {
        let folder = folder();
        let mut plan = logged(
            sh("echo $TORCHELASTIC_RESTART_COUNT; exit 3", 1),
            folder.path(),
        );
        plan.max_restarts = 1;
        assert_eq!(launched(&plan), LaunchEnd::Failed);
        let run = only(folder.path());
        let log = |path: &str| fs::read_to_string(run.join(path)).expect("a log");
        assert_eq!(
            (log("attempt_0/0/stdout.log"), log("attempt_1/0/stdout.log")),
            ("0\n".into(), "1\n".into())
        );
    }

    #[test]
    fn a_restart_that_works_is_success() {
        let mut plan = sh("[ $TORCHELASTIC_RESTART_COUNT = 2 ]", 2);
        plan.max_restarts = 2;
        assert_eq!(launched(&plan), LaunchEnd::Succeeded);
    }

    #[test]
    fn what_a_rank_left_behind_is_gone_at_the_end() {
        let folder = folder();
        let plan = logged(
            sh("trap '' HUP; sleep 100 & echo $!; exit 0", 1),
            folder.path(),
        );
        assert_eq!(launched(&plan), LaunchEnd::Succeeded);
        let log = only(folder.path()).join("attempt_0/0/stdout.log");
        let pid = fs::read_to_string(log).expect("a log").trim().to_owned();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }

    #[test]
    fn ranks_inherit_plan_and_agent_variables() {
        let folder = folder();
        let mut plan = logged(
            sh(
                "echo $RANK/$WORLD_SIZE $LOCAL_RANK $X; [ -n \"$MASTER_PORT\" ]",
                2,
            ),
            folder.path(),
        );
        plan.env.insert("X".to_owned(), "plan".to_owned());
        assert_eq!(launched(&plan), LaunchEnd::Succeeded);
        let log = only(folder.path()).join("attempt_0/1/stdout.log");
        assert_eq!(fs::read_to_string(log).expect("a log"), "1/2 1 plan\n");
    }

    #[test]
    fn an_unusable_log_folder_starts_nothing() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(
            launched(&logged(sh("exit 0", 1), file.path())),
            LaunchEnd::NotStarted
        );
    }
}
