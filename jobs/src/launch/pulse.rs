//! Whether launches are alive, for somebody who looks at a run folder again and again, from any
//! machine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use crate::launch::holder::HolderState;
use crate::launch::{GONE, LockHolder, modified, others};
use crate::layout::RunFolder;

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

    #[test]
    fn a_file_of_another_machine_is_alive_as_long_as_it_is_touched() {
        let (mut pulse, path) = (Pulse::default(), Path::new("launch.lock/a"));
        #[expect(clippy::disallowed_methods, reason = "the start of the test's time")]
        let start = Instant::now();
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
        #[expect(
            clippy::disallowed_methods,
            reason = "the time at which it is looked at"
        )]
        let now = Instant::now();
        let lock = crate::launch::LaunchLock::take(&folder, "0a1b", |_| ()).unwrap();
        let mut pulse = Pulse::default();
        let found = pulse.look(&folder, now);
        assert_eq!(found.len(), 1);
        assert!(found[0].is_certain && found[0].holder.launch == "0a1b");
        drop(lock);
        assert_eq!(pulse.look(&folder, now), []);
    }
}
