//! Who holds a run folder.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, TryLockError};
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::printable::printable;
use crate::time::rfc3339;
use crate::{files, host};

/// Longest file that is read; ours have some 300 bytes.
const LONGEST: u64 = 4096;

/// One process that holds a run folder for its launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Name of the launch, see [`crate::launch::fresh_id`].
    pub launch: String,
    /// Host name of the machine.
    pub host: String,
    /// The process on that machine; 0 while its file is being written.
    pub pid: u32,
    /// User, as the environment names it.
    #[serde(default)]
    pub user: String,
    /// `/proc/sys/kernel/random/boot_id`: the same in all containers of a kernel, and another after every start of it.
    #[serde(default)]
    pub boot: String,
    /// Whether its file could be locked.
    #[serde(default)]
    pub is_locked: bool,
    /// UTC, when it took the folder.
    #[serde(default)]
    pub since: String,
}

/// What can be told of a holder at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Its lock is there.
    Lives,
    /// Its lock was on this machine, and is gone.
    Dead,
    /// Its lock would not be seen from here.
    Unknown,
}

impl Holder {
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

    /// A process that dies leaves its file, so the name differs from that of any other process.
    pub(super) fn file_name(&self) -> String {
        let host: String = self
            .host
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(64)
            .collect();
        format!("{}-{host}-{}.json", self.launch, self.pid)
    }

    /// Reads the file of a lock; `None` if it is none.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let text = files::read(path, LONGEST).ok()?;
        if text.is_empty() {
            // Its process is just about to write it.
            let launch = path.file_name()?.to_str()?.split('-').next()?.to_owned();
            return Some(Self {
                launch,
                ..Self::default()
            });
        }
        serde_json::from_slice(&text).ok()
    }

    /// Whether the process behind the file at `path` lives.
    pub(super) fn life(&self, path: &Path) -> Life {
        let Ok(file) = files::open(path) else {
            return Life::Unknown;
        };
        // Those who only look are in nobody's way; their lock goes with `file`.
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Life::Lives,
            Ok(()) if self.is_locked && !self.boot.is_empty() && self.boot == boot() => Life::Dead,
            Ok(()) | Err(TryLockError::Error(_)) => Life::Unknown,
        }
    }
}

impl Display for Holder {
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

fn boot() -> String {
    line("/proc/sys/kernel/random/boot_id")
}

fn line(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}
