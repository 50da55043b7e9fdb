//! The record of a later start of a run, with the git state of the folder that it was started in,
//! and how a rank opens its journal.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::files;
use crate::journal::Journal;
use crate::launch::PlanLock;
use crate::layout::RunFolder;
use crate::plan::difference::Difference;
use crate::plan::settle::in_use;
use crate::plan::{RunPlan, unusable};
use crate::rank_env::RankEnv;
use crate::refusal::Refusal;
use crate::time::rfc3339;

/// A start of a run after its first one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resumed {
    /// When the run was started, RFC 3339 in UTC.
    pub at: String,
    /// Command line of rank 0.
    pub argv: Vec<String>,
    /// Number of ranks of this start.
    pub world_size: usize,
    /// What has changed since the previous start, one line each.
    pub changed: Vec<String>,
    /// State of the folder that the run was started in, if that folder is under git.
    pub git: Option<Git>,
}

impl RunPlan {
    /// Opens the journal of a rank. Rank 0 records in the plan that the run was started again,
    /// unless this is a rank restart within one launch.
    ///
    /// # Errors
    /// Refuses a journal that another process has open, a folder that has another plan by now, and
    /// the errors of the file system.
    pub fn open_journal(&mut self, folder: &RunFolder, env: &RankEnv) -> Result<Journal, Refusal> {
        let io = unusable(folder);
        let is_first = env.rank == 0 && env.restart_count == 0;
        let lock = if is_first {
            PlanLock::to_change(folder)
        } else {
            PlanLock::to_look(folder)
        };
        let _lock = lock.map_err(&io)?;
        let path = folder.journal(env.rank);
        let mut opened = Err(ErrorKind::ResourceBusy.into());
        let is_free = files::wait_for(|| {
            opened = Journal::open(&path);
            let err = opened.as_ref().err();
            err.is_none_or(|err| err.kind() != ErrorKind::ResourceBusy)
        });
        let journal = opened.map_err(|err| if is_free { io(err) } else { in_use(folder) })?;
        let found = Self::read(folder)?;
        let difference = Difference::between(&found, self);
        if !difference.is_none() || difference.is_reordered() {
            return Err(Refusal::new(format_args!(
                "the plan of `{}` was changed by another evaluation while this one started",
                folder.root().display()
            )));
        }
        let is_again = journal.was_begun() || !found.changed.is_empty();
        if is_first && !self.knows_its_lines() && !is_again {
            self.write(folder).map_err(&io)?;
        }
        if is_first && is_again {
            self.changed.clear();
            self.resumed_from = found.resumed_from;
            self.resumed_from.push(Resumed {
                at: rfc3339(SystemTime::now()),
                argv: std::env::args().collect(),
                world_size: env.world_size,
                changed: found.changed,
                git: Git::here(),
            });
            self.write(folder).map_err(&io)?;
        }
        let stamps = self.stamps(env.launch.as_deref());
        Ok(journal.stamped(stamps))
    }
}

/// How long to wait for git: a work tree on a slow file system is not worth a longer wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// Commit and state of a git work tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Git {
    /// Hash of the commit that is checked out.
    pub commit: String,
    /// Whether a tracked file differs from the commit.
    pub dirty: bool,
}

impl Git {
    /// Asks git for the state of the working directory. Returns `None` if there is no git, no
    /// repository, no commit, or no answer within a second.
    pub fn here() -> Option<Self> {
        Self::by(OsStr::new("git"), Path::new("."), PATIENCE)
    }

    /// Asks `program`, which must answer as git does, for the state of a folder, and waits at most
    /// `patience`.
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
