//! A file in the output folder on which locks and syncs are tried. It has no name after it was
//! opened, so that nothing stays behind, whatever happens.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use jobs::launch::fresh_id;

use crate::tools::doctor::check::now;

/// Bytes of a journal line, about.
const LINE: usize = 512;

/// Number of synced lines.
const LINES: usize = 7;

/// The file, opened twice.
pub(super) struct Trial {
    first: File,
    second: File,
}

impl Trial {
    /// Makes the file, and removes its name.
    ///
    /// # Errors
    /// Returns the error of the file system.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!(".rrun-doctor-{}", fresh_id()?));
        let mut options = OpenOptions::new();
        let first = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        let second = OpenOptions::new().read(true).write(true).open(&path);
        // Removed before an error is returned.
        fs::remove_file(&path)?;
        Ok(Self {
            first,
            second: second?,
        })
    }

    /// Returns the median time to append a line and sync it.
    ///
    /// # Errors
    /// Returns the error of the file system.
    pub(super) fn sync_time(&self) -> io::Result<Duration> {
        let mut times = [Duration::ZERO; LINES];
        for time in &mut times {
            let start = now();
            (&self.first).write_all(&[b' '; LINE])?;
            self.first.sync_data()?;
            *time = start.elapsed();
        }
        times.sort();
        Ok(times[LINES / 2])
    }

    /// Tries whether a lock excludes another one.
    ///
    /// # Errors
    /// Returns the reason why not.
    pub(super) fn locks(&self) -> Result<(), String> {
        let refused = |err: TryLockError| format!("files cannot be locked: {err}");
        self.first.try_lock().map_err(refused)?;
        let other = self.second.try_lock();
        // The lock would also end with the file.
        let _ = self.first.unlock();
        match other {
            Err(TryLockError::WouldBlock) => Ok(()),
            Ok(()) => Err("a locked file can be locked again".to_owned()),
            Err(err) => Err(refused(err)),
        }
    }

    /// Returns by how many seconds the file system's clock is ahead of this machine's.
    pub(super) fn clock_skew_s(&self) -> Option<f64> {
        let made = self.first.metadata().ok()?.modified().ok()?;
        Some(match made.duration_since(SystemTime::now()) {
            Ok(ahead) => ahead.as_secs_f64(),
            Err(behind) => -behind.duration().as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_locks_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let trial = Trial::new(folder.path()).unwrap();
        assert_eq!(trial.locks(), Ok(()));
        assert!(trial.clock_skew_s().unwrap().abs() < 60.0);
        assert!(trial.sync_time().unwrap() > Duration::ZERO);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
