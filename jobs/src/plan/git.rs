//! The git state of the folder that a run was started in.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long to wait for git: a work tree on a slow file system is not worth a longer wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// Commit and state of a git work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Git {
    /// Hash of the commit that is checked out.
    pub commit: String,
    /// Whether a tracked file differs from the commit.
    pub dirty: bool,
}

impl Git {
    /// Asks git for the state of a folder. Returns `None` if there is no git, no repository, no
    /// commit, or no answer within a second.
    pub fn of(folder: &Path) -> Option<Self> {
        Self::by(OsStr::new("git"), folder, PATIENCE)
    }

    /// Asks `program`, which must answer as git does, and waits at most `patience`.
    pub fn by(program: &OsStr, folder: &Path, patience: Duration) -> Option<Self> {
        let mut git = Command::new(program);
        git.args([
            "-c",
            "core.fsmonitor=false",
            "status",
            "--porcelain=v2",
            "--branch",
            "--untracked-files=no",
        ]);
        // The index belongs to the user: git may read it but must not write it.
        git.env("GIT_OPTIONAL_LOCKS", "0")
            .env("LC_ALL", "C")
            .current_dir(folder);
        let child = git
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Self::read(&output(child, patience)?)
    }

    /// Parses git-status(1), "Porcelain Format Version 2": headers begin with `#`, every other line
    /// is a change.
    fn read(text: &str) -> Option<Self> {
        let commit = text
            .lines()
            .find_map(|line| line.strip_prefix("# branch.oid "))?;
        let is_change = |line: &str| !line.is_empty() && !line.starts_with('#');
        (commit != "(initial)").then(|| Self {
            commit: commit.to_owned(),
            dirty: text.lines().any(is_change),
        })
    }
}

/// Returns the output of a process that exits successfully within `patience`.
fn output(mut child: Child, patience: Duration) -> Option<String> {
    let mut pipe = child.stdout.take()?;
    let (send, receive) = channel();
    let reader = std::thread::Builder::new()
        .name("git".to_owned())
        .spawn(move || {
            let mut text = String::new();
            // After a timeout the receiver is gone.
            let _ = send.send(std::io::Read::read_to_string(&mut pipe, &mut text).map(|_| text));
        });
    let text = reader
        .ok()
        .and_then(|_| receive.recv_timeout(patience).ok()?.ok());
    if text.is_none() {
        // The process may already have exited.
        let _ = child.kill();
    }
    child.wait().ok()?.success().then_some(text)?
}
