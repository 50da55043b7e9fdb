//! Whether launches are alive, for somebody who looks at a run folder again and again, from any
//! machine.

use std::collections::{BTreeSet, HashMap};
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

/// When the modification time of a lock file was last seen to change.
#[derive(Clone, Copy, Debug)]
struct LastTouch {
    touched: Option<SystemTime>,
    seen: Instant,
}

impl Pulse {
    /// Returns the ids of the launches that are alive. The launch of another machine counts as alive
    /// until its file has not changed for [`GONE`]. Does not wait.
    pub fn look(&mut self, folder: &RunFolder, now: Instant) -> BTreeSet<String> {
        let paths = others(folder, None).unwrap_or_default();
        self.files.retain(|path, _| paths.contains(path));
        let mut alive = BTreeSet::new();
        for path in paths {
            let Some(holder) = LockHolder::read(&path) else {
                continue;
            };
            let is_alive = match holder.life(&path) {
                HolderState::Lives => true,
                HolderState::Dead => false,
                HolderState::Unknown => self.beats(&path, modified(&path), now),
            };
            if is_alive {
                alive.insert(holder.launch);
            }
        }
        alive
    }

    fn beats(&mut self, path: &Path, touched: Option<SystemTime>, now: Instant) -> bool {
        let fresh = LastTouch { touched, seen: now };
        let last = self.files.entry(path.to_owned()).or_insert(fresh);
        if last.touched != touched {
            *last = fresh;
        }
        now.saturating_duration_since(last.seen) < GONE
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
        assert!(pulse.beats(path, touched(0), start));
        assert!(pulse.beats(path, touched(5), start + GONE));
        let last = start + GONE * 2 - Duration::from_secs(1);
        assert!(pulse.beats(path, touched(5), last));
        assert!(!pulse.beats(path, touched(5), start + GONE * 2));
        assert!(
            pulse.beats(path, touched(90), start + GONE * 3),
            "it was only slow"
        );
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
        assert_eq!(
            pulse.look(&folder, now),
            BTreeSet::from(["0a1b".to_owned()])
        );
        drop(lock);
        assert_eq!(pulse.look(&folder, now), BTreeSet::new());
    }
}
