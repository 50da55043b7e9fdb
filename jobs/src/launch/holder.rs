//! The process that holds a run folder: the contents of its lock file, and whether it is alive, also
//! for somebody who looks again and again, from any machine.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::launch::{GONE, modified, others};
use crate::layout::RunFolder;
use crate::printable::printable;
use crate::time::rfc3339;
use crate::{files, host};

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
    pub user: String,
    /// Contents of `/proc/sys/kernel/random/boot_id`: the same in all containers of a kernel, and
    /// different after every boot.
    pub boot: String,
    /// Whether the process could lock its file.
    pub is_locked: bool,
    /// Time at which the process locked the folder, RFC 3339 in UTC.
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
            files::wait_for(|| !lives());
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

/// What was seen of the lock files so far.
#[derive(Debug, Default)]
pub struct Pulse {
    files: HashMap<PathBuf, LastTouch>,
}

/// A launch that is alive on one node, or may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivingLaunch {
    /// The process that holds the run folder.
    pub holder: LockHolder,
    /// Path of its lock file.
    pub path: PathBuf,
    /// Whether its lock is held, or its file was seen to change. Otherwise it may have died.
    pub is_certain: bool,
}

/// When the modification time of a lock file was last seen to change.
#[derive(Clone, Copy, Debug)]
struct LastTouch {
    touched: Option<SystemTime>,
    seen: Instant,
    has_changed: bool,
}

impl Pulse {
    /// Returns the launches that are alive, one entry for each node, in the order of their files. The
    /// launch of another machine counts as alive until its file has not changed for [`GONE`]. Does
    /// not wait.
    pub fn look(&mut self, folder: &RunFolder, now: Instant) -> Vec<LivingLaunch> {
        self.look_at(others(folder, None).unwrap_or_default(), now)
    }

    /// As [`Pulse::look`], at these lock files.
    pub(super) fn look_at(&mut self, paths: Vec<PathBuf>, now: Instant) -> Vec<LivingLaunch> {
        self.files.retain(|path, _| paths.contains(path));
        let mut alive = Vec::new();
        for path in paths {
            let Some(holder) = LockHolder::read(&path) else {
                continue;
            };
            let certainty = match holder.life(&path) {
                HolderState::Lives => Some(true),
                HolderState::Dead => None,
                HolderState::Unknown => self.beats(&path, modified(&path), now),
            };
            if let Some(is_certain) = certainty {
                alive.push(LivingLaunch {
                    holder,
                    path,
                    is_certain,
                });
            }
        }
        alive
    }

    /// Returns whether it is certain that the holder of a file is alive; `None` if it is dead.
    fn beats(&mut self, path: &Path, touched: Option<SystemTime>, now: Instant) -> Option<bool> {
        let first = LastTouch {
            touched,
            seen: now,
            has_changed: false,
        };
        let last = self.files.entry(path.to_owned()).or_insert(first);
        if last.touched != touched {
            *last = LastTouch {
                has_changed: true,
                ..first
            };
        }
        let is_alive = now.saturating_duration_since(last.seen) < GONE;
        is_alive.then_some(last.has_changed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::now;

    #[test]
    fn a_file_of_another_machine_is_alive_as_long_as_it_is_touched() {
        let (mut pulse, path) = (Pulse::default(), Path::new("launch.lock/a"));
        let start = now();
        let touched = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let certain = Some(true);
        assert_eq!(pulse.beats(path, touched(0), start), Some(false));
        assert_eq!(pulse.beats(path, touched(5), start + GONE), certain);
        let last = start + GONE * 2 - Duration::from_secs(1);
        assert_eq!(pulse.beats(path, touched(5), last), certain);
        assert_eq!(pulse.beats(path, touched(5), start + GONE * 2), None);
        let slow = pulse.beats(path, touched(90), start + GONE * 3);
        assert_eq!(slow, certain, "it was only slow");
    }

    #[test]
    fn the_launch_that_holds_a_folder_is_alive_until_it_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        let now = now();
        let lock = crate::launch::LaunchLock::take(&folder, "0a1b", |_| ()).unwrap();
        let mut pulse = Pulse::default();
        let found = pulse.look(&folder, now);
        assert_eq!(found.len(), 1);
        assert!(found[0].is_certain && found[0].holder.launch == "0a1b");
        drop(lock);
        assert_eq!(pulse.look(&folder, now), []);
    }
}
