//! A model server as a process: started as a rank is, with its output in a file, ended with all that it has started.

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
use crate::plan::model_server::ServerPlan;
use crate::process::command::{Command, Output, Stream};
use crate::process::environment::Environment;
use crate::process::exit::Exit;
use crate::process::leftover::{Leftovers, Spared, Trace};
use crate::process::rank::Rank;
use crate::process::start::Start;

/// Marks what descends from a model server of this launcher.
const MARK: &str = "RRUN_MODEL_SERVER_MARK";

/// What a line begins with that tells of a start.
pub const START: &str = "--- rrun starts";

/// A server that was started.
#[derive(Debug)]
pub struct Process {
    leader: Rank,
    /// None where there is no shell: then what the server has started may outlive a launcher that is killed.
    guard: Option<Guard>,
}

impl Process {
    /// Starts it. The calling thread must live as long as it.
    pub fn start(plan: &ServerPlan) -> io::Result<Process> {
        let server = &plan.server;
        let file = log(&plan.log, &server.command)?;
        let env = Environment::inherited(&server.env)?;
        let mark = [(MARK.to_owned(), std::process::id().to_string())].into_iter().collect();
        let env: Vec<Cow<'_, CStr>> = env.with(&[&mark])?;
        let output = Output { stdout: Stream::File(file.try_clone()?), stderr: Stream::File(file) };
        let argv: Vec<OsString> = server.command.iter().map(OsString::from).collect();
        let mut start = Start::new()?;
        start.spawn(&Command::of(&argv, server.cwd.as_deref(), env, output)?)?;
        let (mut started, failed) = start.finish();
        let Some(leader) = started.pop() else {
            return Err(failed.map_or_else(|| io::Error::other("it was not started"), |failed| failed.err));
        };
        let guard = Guard::over(leader.pid());
        let guard = guard.inspect_err(|err| tracing::warn!(%err, "nobody watches over the children of the server"));
        Ok(Process { leader, guard: guard.ok() })
    }

    /// Its pid, process group and session.
    pub fn pid(&self) -> i32 {
        self.leader.pid().as_raw()
    }

    /// What must not be taken for something that a rank left behind.
    pub fn spared(&self) -> Spared {
        let pids = [Some(self.pid()), self.guard.as_ref().and_then(Guard::pid)];
        Spared { pids: pids.into_iter().flatten().collect(), mark: mark() }
    }

    /// Looks whether it has ended.
    pub fn exited(&mut self) -> Option<Exit> {
        self.leader.peek(SystemTime::now()).map(|ended| ended.exit)
    }

    /// Sends a signal to its process group.
    pub fn signal(&self, signal: i32) {
        self.leader.signal(signal);
    }

    /// Kills what it has left behind, once it has ended; how many processes of it live.
    pub fn kill_leftovers(&self, leftovers: &Leftovers, ranks: &BTreeSet<i32>) -> usize {
        self.leader.signal(libc::SIGKILL);
        let others: BTreeSet<i32> = ranks.iter().copied().chain([self.pid()]).collect();
        leftovers.signal_of(&others, Trace { pid: self.pid(), mark: &mark() }, Some(Signal::SIGKILL))
    }

    /// Removes the zombie; what does not end is left behind.
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

/// The log of all starts, with a line about this one at its end.
fn log(path: &Path, command: &[String]) -> io::Result<File> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    writeln!(file, "{START} `{}` at {}", command.join(" "), rfc3339(SystemTime::now()))?;
    Ok(file)
}
