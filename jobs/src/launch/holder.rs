//! The process that holds a run folder: the contents of its lock file, and whether it is alive.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, TryLockError};
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::printable::printable;
use crate::time::rfc3339;
use crate::{files, host, patience};

/// Maximum size in bytes of a lock file that is read; valid ones have about 300.
const LONGEST: u64 = 4096;

/// A process that holds a run folder for its launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Id of the launch, see [`crate::launch::fresh_id`].
    pub launch: String,
    /// Host name of the machine.
    pub host: String,
    /// Process id on that machine; 0 while the file is being written.
    pub pid: u32,
    /// User name, from the environment.
    #[serde(default)]
    pub user: String,
    /// Contents of `/proc/sys/kernel/random/boot_id`: the same in all containers of a kernel, and
    /// different after every boot.
    #[serde(default)]
    pub boot: String,
    /// Whether the process could lock its file.
    #[serde(default)]
    pub is_locked: bool,
    /// Time at which the process locked the folder, RFC 3339 in UTC.
    #[serde(default)]
    pub since: String,
}

/// Whether a holder is alive, as far as one check can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HolderState {
    /// The lock is held, so the process is alive.
    Lives,
    /// The lock was held on this machine and is released, so the process is dead.
    Dead,
    /// The lock would not be visible from here.
    Unknown,
}

impl LockHolder {
    pub(super) fn this_process(launch: &str) -> Self {
        let user = ["USER", "LOGNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok());
        Self {
            launch: launch.to_owned(),
            host: host::name(),
            pid: std::process::id(),
            user: user.unwrap_or_default(),
            boot: boot(),
            is_locked: false,
            since: rfc3339(SystemTime::now()),
        }
    }

    /// Returns the name of the lock file. It differs from that of any other process, because a
    /// process that is killed leaves its file behind.
    pub(super) fn file_name(&self) -> String {
        let host: String = self
            .host
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(64)
            .collect();
        format!("{}-{host}-{}.json", self.launch, self.pid)
    }

    /// Reads a lock file; returns `None` if it is not one.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let text = files::read(path, LONGEST).ok()?;
        if text.is_empty() {
            // The process has created the file and not written it yet.
            let launch = path.file_name()?.to_str()?.split('-').next()?.to_owned();
            return Some(Self {
                launch,
                ..Self::default()
            });
        }
        serde_json::from_slice(&text).ok()
    }

    /// Returns whether the process that holds the lock file at `path` is alive.
    pub(super) fn life(&self, path: &Path) -> HolderState {
        let Ok(file) = files::open(path) else {
            return HolderState::Unknown;
        };
        // A shared lock does not conflict with other checks. It is released when `file` is dropped.
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => HolderState::Lives,
            Ok(()) if self.is_locked && !self.boot.is_empty() && self.boot == boot() => {
                HolderState::Dead
            }
            Ok(()) | Err(TryLockError::Error(_)) => HolderState::Unknown,
        }
    }

    /// Waits for the lock of a process that may have been killed a moment ago. A child that it had
    /// just forked has its open files, and with them the lock, until that child calls `exec`.
    pub(super) fn wait_for_its_end(&self, path: &Path) {
        let lives = || self.life(path) == HolderState::Lives;
        if lives() && self.boot == boot() && !is_running(self.pid) {
            patience::wait_for(|| !lives());
        }
    }
}

impl Display for LockHolder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.pid == 0 {
            return write!(
                f,
                "a launch that is just starting ({})",
                printable(&self.launch)
            );
        }
        write!(f, "process {} on {}", self.pid, printable(&self.host))?;
        if !self.user.is_empty() {
            write!(f, " (user {})", printable(&self.user))?;
        }
        write!(
            f,
            ", launch {} since {}",
            printable(&self.launch),
            printable(&self.since)
        )
    }
}

/// Returns whether a process of this machine runs. A process of another container counts as one
/// that does not.
fn is_running(pid: u32) -> bool {
    let stat = line(&format!("/proc/{pid}/stat"));
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn boot() -> String {
    line("/proc/sys/kernel/random/boot_id")
}

fn line(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}
