//! What the kernel does not do when the launcher is killed: end the children of the model server too.
//!
//! `PR_SET_PDEATHSIG` reaches the process that we have started. Where that is a shell, or a server with worker processes,
//! its children would live on and hold their GPU. So a process of its own waits for the end of a pipe that we hold, which
//! comes however we end, and kills the server's group then.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use nix::unistd::Pid;

/// Signals that a scheduler or a terminal sends to everyone are not for it.
const SCRIPT: &str = "trap '' HUP INT QUIT TERM USR1 USR2; read -r nothing; kill -s KILL -- \"-$1\"";

/// Kills a process group when this process dies. Dropping it calls that off, and must come before the group's leader is
/// reaped, so that its number is no stranger's.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Begins to watch over the group that `leader` leads.
    ///
    /// # Errors
    /// Where there is no shell.
    pub fn over(leader: Pid) -> io::Result<Guard> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "sh", &leader.as_raw().to_string()]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        command.spawn().map(Guard)
    }

    /// Its pid.
    pub fn pid(&self) -> Option<i32> {
        i32::try_from(self.0.id()).ok()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Before the pipe is closed, which happens when the child is dropped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
