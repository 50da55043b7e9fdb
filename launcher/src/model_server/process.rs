//! The process of a model server: started like a rank, with its output in a file, and ended
//! together with its descendants: a [`Guard`] kills them if the launcher is killed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use jobs::time::rfc3339;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::logs::lines::last_lines;
use crate::plan::ServerPlan;
use crate::process::command::{ChildCommand, ChildEnvironment, ChildOutput};
use crate::process::leftover::{Leftovers, Spared, Whose};
use crate::process::rank::RankProcess;
use crate::say;

/// The variable that marks the descendants of this launcher's model server.
const MARK: &str = "RRUN_MODEL_SERVER_MARK";

/// Prefix of the log line that marks a start.
const START: &str = "--- rrun starts";

/// Number of lines of a failed server to print.
const LINES: usize = 10;

/// Waits for the end of its input. The guard ignores signals that a scheduler or a terminal sends
/// to all processes.
const GUARD: &str = "trap '' HUP INT QUIT TERM USR1 USR2; read -r nothing; kill -s KILL -- \"-$1\"";

/// The process of a started server.
#[derive(Debug)]
pub struct ServerProcess {
    /// The process that was started.
    pub leader: RankProcess,
    /// `None` if there is no shell; then the server's descendants may outlive a launcher that is
    /// killed.
    guard: Option<Guard>,
}

impl ServerProcess {
    /// Starts the server. The calling thread must live as long as the server.
    pub fn start(plan: &ServerPlan) -> io::Result<ServerProcess> {
        let server = &plan.server;
        let file = log(&plan.log, &server.command)?;
        let mark = [(MARK.to_owned(), std::process::id().to_string())].into();
        let env = ChildEnvironment::inherited(&server.env)?.with(&[&mark])?;
        let output = ChildOutput {
            stdout: Some(file.try_clone()?),
            stderr: Some(file),
        };
        let argv: Vec<OsString> = server.command.iter().map(OsString::from).collect();
        let leader =
            RankProcess::start(ChildCommand::of(&argv, server.cwd.as_deref(), env, output)?)?;
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

    /// Kills the leftovers of the exited server. Returns the number of living processes.
    pub fn kill_leftovers(&self, leftovers: &Leftovers, ranks: &BTreeSet<i32>) -> usize {
        self.leader.signal(libc::SIGKILL);
        let (pid, mark) = (self.pid(), &mark());
        let others = ranks.iter().copied().chain([pid]).collect();
        leftovers.signal(&others, Whose::One { pid, mark }, Some(Signal::SIGKILL))
    }

    /// Reaps the process, or abandons it if it does not end.
    pub fn reap(self) {
        drop(self.guard);
        if self.leader.has_ended() {
            self.leader.reap();
        }
    }
}

/// Kills a process group when this process dies. Dropping the guard cancels that. It must be
/// dropped before the group's leader is reaped, because the pid could be reused after that.
///
/// `PR_SET_PDEATHSIG` only reaches the process that the launcher has started. If that is a shell,
/// or a server with worker processes, its children would live on and hold their GPU. The guard, a
/// separate process, therefore waits for the end of a pipe that the launcher holds open, which
/// closes however the launcher ends.
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    /// Starts to guard the process group of `leader`; without a shell, there is an error.
    fn over(leader: Pid) -> io::Result<Guard> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", GUARD, "sh", &leader.as_raw().to_string()])
            .process_group(0);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/");
        command.spawn().map(Guard)
    }

    /// Returns the pid of the guard process.
    fn pid(&self) -> Option<i32> {
        i32::try_from(self.0.id()).ok()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The guard has to be killed before the pipe is closed, which happens when the child is
        // dropped.
        let _ = self.0.kill();
        let _ = self.0.wait();
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

/// Prints the last output of a server that has failed.
pub fn say_last_lines(log: &Path) {
    let path = log.display();
    match last_lines(log, LINES).map(of_last_start) {
        Ok(lines) if lines.is_empty() => say::error(format_args!(
            "model server: `{path}` has nothing since its last start"
        )),
        Ok(lines) => {
            let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
            say::error(format_args!("model server: end of `{path}`:{lines}"));
        }
        Err(err) => say::error(format_args!("model server: cannot read `{path}`: {err}")),
    }
}

/// Returns the lines of the last start; the log contains all starts.
fn of_last_start(mut lines: Vec<String>) -> Vec<String> {
    let start = lines.iter().rposition(|line| line.starts_with(START));
    lines.drain(..start.map_or(0, |start| start + 1));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_starts_the_last_one_has_the_last_words() {
        let of = |lines: &[&str]| {
            of_last_start(lines.iter().map(|&line| line.to_owned()).collect()).join(" ")
        };
        let start = format!("{}…", START);
        assert_eq!(of(&["a", &start, "b", &start, "c", "d"]), "c d");
        assert_eq!(
            (of(&["a", "b"]), of(&["a", &start])),
            ("a b".to_owned(), String::new())
        );
    }
}
