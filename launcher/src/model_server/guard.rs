//! Kills the descendants of the model server if the launcher is killed, which the kernel alone does
//! not.
//!
//! `PR_SET_PDEATHSIG` only reaches the process that the launcher has started. If that is a shell,
//! or a server with worker processes, its children would live on and hold their GPU. A separate
//! guard process therefore waits for the end of a pipe that the launcher holds open. The pipe
//! closes however the launcher ends; then the guard kills the server's process group.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use nix::unistd::Pid;

/// The guard ignores signals that a scheduler or a terminal sends to all processes.
const SCRIPT: &str =
    "trap '' HUP INT QUIT TERM USR1 USR2; read -r nothing; kill -s KILL -- \"-$1\"";

/// Kills a process group when this process dies. Dropping the guard cancels that. It must be
/// dropped before the group's leader is reaped, because the pid could be reused after that.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Starts to guard the process group of `leader`.
    ///
    /// # Errors
    /// Returns an error if there is no shell.
    pub fn over(leader: Pid) -> io::Result<Guard> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT, "sh", &leader.as_raw().to_string()])
            .process_group(0);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/");
        command.spawn().map(Guard)
    }

    /// Returns the pid of the guard process.
    pub fn pid(&self) -> Option<i32> {
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
