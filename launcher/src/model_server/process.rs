//! The process of a model server: started like a rank, with its output in a file, and ended
//! together with its descendants.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{CStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::SystemTime;

use jobs::time::rfc3339;
use nix::sys::signal::Signal;

use crate::model_server::guard::Guard;
use crate::plan::ServerPlan;
use crate::process::command::{ChildCommand, ChildOutput, OutputStream};
use crate::process::environment::ChildEnvironment;
use crate::process::exit::Exit;
use crate::process::leftover::{Leftovers, Spared, Trace};
use crate::process::rank::RankProcess;
use crate::process::start::ParallelStart;

/// The variable that marks the descendants of this launcher's model server.
const MARK: &str = "RRUN_MODEL_SERVER_MARK";

/// Prefix of the log line that marks a start.
pub const START: &str = "--- rrun starts";

/// The process of a started server.
#[derive(Debug)]
pub struct ServerProcess {
    leader: RankProcess,
    /// `None` if there is no shell; then the server's descendants may outlive a launcher that is
    /// killed.
    guard: Option<Guard>,
}

impl ServerProcess {
    /// Starts the server. The calling thread must live as long as the server.
    pub fn start(plan: &ServerPlan) -> io::Result<ServerProcess> {
        let server = &plan.server;
        let file = log(&plan.log, &server.command)?;
        let env = ChildEnvironment::inherited(&server.env)?;
        let mark = [(MARK.to_owned(), std::process::id().to_string())]
            .into_iter()
            .collect();
        let env: Vec<Cow<'_, CStr>> = env.with(&[&mark])?;
        let output = ChildOutput {
            stdout: OutputStream::File(file.try_clone()?),
            stderr: OutputStream::File(file),
        };
        let argv: Vec<OsString> = server.command.iter().map(OsString::from).collect();
        let command = ChildCommand::of(&argv, server.cwd.as_deref(), env, output)?;
        let mut start = ParallelStart::new()?;
        start.spawn(command)?;
        let (mut started, failed) = start.finish();
        let Some(leader) = started.pop() else {
            return Err(failed.map_or_else(
                || io::Error::other("it was not started"),
                |failed| failed.err,
            ));
        };
        let guard = Guard::over(leader.pid());
        let guard = guard.inspect_err(
            |err| tracing::warn!(%err, "the guard of the server's children is missing"),
        );
        Ok(ServerProcess {
            leader,
            guard: guard.ok(),
        })
    }

    /// Returns its pid, which is also the id of its process group and session.
    pub fn pid(&self) -> i32 {
        self.leader.pid().as_raw()
    }

    /// Returns the processes that must not be taken for leftovers of a rank.
    pub fn spared(&self) -> Spared {
        let pids = [Some(self.pid()), self.guard.as_ref().and_then(Guard::pid)];
        Spared {
            pids: pids.into_iter().flatten().collect(),
            mark: mark(),
        }
    }

    /// Checks whether it has exited.
    pub fn exited(&mut self) -> Option<Exit> {
        self.leader.peek(SystemTime::now()).map(|ended| ended.exit)
    }

    /// Sends a signal to its process group.
    pub fn signal(&self, signal: i32) {
        self.leader.signal(signal);
    }

    /// Kills the leftovers of the exited server. Returns the number of living processes.
    pub fn kill_leftovers(&self, leftovers: &Leftovers, ranks: &BTreeSet<i32>) -> usize {
        self.leader.signal(libc::SIGKILL);
        let others: BTreeSet<i32> = ranks.iter().copied().chain([self.pid()]).collect();
        leftovers.signal_of(
            &others,
            Trace {
                pid: self.pid(),
                mark: &mark(),
            },
            Some(Signal::SIGKILL),
        )
    }

    /// Reaps the process, or abandons it if it does not end.
    pub fn reap(self) {
        drop(self.guard);
        if self.leader.ended().is_some() {
            self.leader.reap();
        }
    }
}

fn mark() -> String {
    format!("{MARK}={}", std::process::id())
}

/// Opens the log of all starts, and appends a line about this one.
fn log(path: &Path, command: &[String]) -> io::Result<File> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    writeln!(
        file,
        "{START} `{}` at {}",
        command.join(" "),
        rfc3339(SystemTime::now())
    )?;
    Ok(file)
}
