//! A virtual X display, for simulators that cannot render without one.
//!
//! Xvfb chooses the display number itself and reports it (`-displayfd`), so that users and nodes
//! never clash. It renders on the CPU.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jobs::eval_args::Screen;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::clock::now;
use crate::python::{guard, is_readable};

/// Time limit for the start. Xvfb needs less than a second, and more on a busy machine.
pub const START_LIMIT: Duration = Duration::from_secs(30);

/// Time from SIGTERM to SIGKILL.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A running Xvfb. It is stopped when this value is dropped, and when the thread that started it
/// ends.
#[derive(Debug)]
pub struct VirtualDisplay {
    server: Child,
    /// Its stderr, in a memory file because a pipe would fill up.
    log: File,
    name: String,
}

impl VirtualDisplay {
    /// Starts `program` (`Xvfb`) with the given screen, and waits until the display can be used.
    ///
    /// # Errors
    /// Returns the reason why there is no display, and what to do about it.
    pub fn start(program: &Path, screen: Screen, limit: Duration) -> Result<Self, String> {
        let stderr = memfd_create("xvfb", MemfdFlags::CLOEXEC).map_err(|err| err.to_string())?;
        let stderr = File::from(stderr);
        let log = stderr.try_clone().map_err(|err| err.to_string())?;
        let mut command = Command::new(program);
        command
            .args(["-displayfd", "1", "-nolisten", "tcp", "-noreset"])
            .args(["-screen", "0", &screen.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr);
        // On SIGTERM Xvfb removes its socket and its lock file.
        guard(&mut command, Signal::TERM, &[]);
        let server = command.spawn().map_err(|err| match err.kind() {
            io::ErrorKind::NotFound => {
                "Xvfb is not installed, no display can be started: apt install xvfb".to_owned()
            }
            _ => format!("cannot start {}: {err}", program.display()),
        })?;
        let mut display = Self {
            server,
            log,
            name: String::new(),
        };
        display.name = format!(":{}", display.number(limit)?);
        Ok(display)
    }

    /// Returns the name of the display, `:N`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the display number, which Xvfb reports when it listens.
    fn number(&mut self, limit: Duration) -> Result<u32, String> {
        let mut said = self.server.stdout.take().ok_or("Xvfb has no output")?;
        let (deadline, mut text) = (now() + limit, Vec::new());
        while !text.contains(&b'\n') {
            if !is_readable(&said, deadline.saturating_duration_since(now())) {
                let seconds = limit.as_secs();
                return Err(format!("Xvfb reported no display within {seconds} s"));
            }
            let mut piece = [0; 32];
            match said.read(&mut piece) {
                Ok(count) if count > 0 && text.len() < 32 => text.extend(&piece[..count]),
                _ => return Err(self.last_words()),
            }
        }
        let number = String::from_utf8_lossy(&text).trim().parse();
        number.map_err(|_| "Xvfb reported no display".to_owned())
    }

    fn last_words(&mut self) -> String {
        self.kill();
        let mut text = Vec::new();
        // If the log cannot be read, there is no message.
        self.log.rewind().ok();
        self.log.read_to_end(&mut text).ok();
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines().rev().map(str::trim);
        let line = lines.find(|line| !line.is_empty());
        format!("Xvfb ended: {}", line.unwrap_or("it printed nothing"))
    }

    /// The process may have ended already. It is not reaped yet, so its PID cannot have been
    /// reused.
    fn kill(&mut self) {
        let group = Pid::from_child(&self.server);
        kill_process_group(group, Signal::TERM).ok();
        if let Ok(pidfd) = pidfd_open(group, PidfdFlags::empty()) {
            is_readable(&pidfd, STOP_LIMIT);
        }
        kill_process_group(group, Signal::KILL).ok();
        self.server.wait().ok();
    }
}

impl Drop for VirtualDisplay {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const SCREEN: Screen = Screen {
        width: 640,
        height: 480,
        depth: 24,
    };

    /// Creates a program that stands in for Xvfb.
    fn server(script: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Xvfb");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    }

    fn start(script: &str, limit: Duration) -> Result<VirtualDisplay, String> {
        let (_folder, path) = server(script);
        VirtualDisplay::start(&path, SCREEN, limit)
    }

    #[test]
    fn the_number_that_the_server_chose_is_the_display() {
        let script = "echo \"$*\" >&2; printf 4; echo 2; exec sleep 100";
        assert_eq!(start(script, START_LIMIT).unwrap().name(), ":42");
    }

    #[test]
    fn nothing_is_left_of_it() {
        let display = start("sleep 1000 & echo 7; wait", START_LIMIT).unwrap();
        let group = format!("/proc/{}", display.server.id());
        assert!(Path::new(&group).exists());
        drop(display);
        assert!(!Path::new(&group).exists());
    }

    #[test]
    fn a_server_that_ends_says_nothing_or_is_not_there_is_told() {
        let fails = "echo 'Fatal server error:' >&2; echo '(EE) no screens found' >&2; exit 1";
        let no_server = VirtualDisplay::start(Path::new("/nowhere/Xvfb"), SCREEN, START_LIMIT);
        let hint = "Xvfb is not installed, no display can be started: apt install xvfb";
        for (started, reason) in [
            (
                start(fails, START_LIMIT),
                "Xvfb ended: (EE) no screens found",
            ),
            (
                start("exec sleep 100", Duration::from_millis(50)),
                "Xvfb reported no display within 0 s",
            ),
            (no_server, hint),
        ] {
            assert_eq!(started.unwrap_err(), reason);
        }
    }
}
