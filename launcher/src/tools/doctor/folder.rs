//! Checks the output folder: that files can be made and locked there, how much space is left, and
//! how long a line of a journal takes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use jobs::bytes::ByteSize;
use jobs::finding::Finding;
use jobs::launch::fresh_id;
use jobs::time::now;
use nix::sys::statfs::{FsType, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, statfs};
use nix::sys::statvfs::statvfs;

use crate::tools::doctor::Site;

/// Name of the first finding.
const NAME: &str = "output folder";

/// linux/magic.h; not in libc.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// Below this, nothing can be recorded.
const LEAST: u64 = 64 << 20;

/// A night with videos takes more.
const LITTLE: u64 = 10 << 30;

/// Fewest files that still can be made.
const FEW_FILES: u64 = 1000;

/// A journal is synced after each episode, which waits for it.
const SLOW_SYNC: Duration = Duration::from_millis(200);

/// Bytes of a journal line, about.
const LINE: usize = 512;

/// Number of synced lines.
const LINES: usize = 7;

/// Examines a folder that need not exist.
pub(super) fn examine(site: &Site) -> Vec<Finding> {
    examined(&site.output)
}

fn examined(output: &Path) -> Vec<Finding> {
    let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    let existing = output.ancestors().find(|folder| folder.exists());
    let existing = existing.unwrap_or(Path::new("/"));
    let trial = match Trial::new(existing) {
        Ok(trial) => trial,
        Err(err) => return vec![not_writable(&output, existing, &err)],
    };
    let kind = statfs(existing).ok().map(|found| found.filesystem_type());
    let disk = statvfs(existing).ok();
    let free = disk.map(|disk| disk.blocks_available().saturating_mul(disk.fragment_size()));
    let limited = disk.filter(|disk| disk.files() > 0);
    vec![
        writable(&output, existing, kind),
        locks(trial.locks()),
        room(free, limited.map(|disk| disk.files_available())),
        journal(trial.sync_time()),
    ]
}

fn not_writable(output: &Path, existing: &Path, err: &io::Error) -> Finding {
    let place = place(output, existing);
    let found = format!("{place} cannot be written: {err}");
    let remedy = "choose a folder of yours with --output, or ask for write access";
    Finding::failed(NAME, found, remedy)
}

/// Judges a folder on a file system of this type.
fn writable(output: &Path, existing: &Path, kind: Option<FsType>) -> Finding {
    let found = format!("{} can be written", place(output, existing));
    match kind {
        Some(TMPFS_MAGIC | RAMFS_MAGIC) => {
            let remedy = "choose another --output for results that are to last";
            let found = format!("{found}: it takes memory, and is lost at a reboot");
            Finding::warning(NAME, found, remedy)
        }
        Some(OVERLAYFS_SUPER_MAGIC) => {
            let found = format!("{found}: it is lost with its container unless it is a volume");
            Finding::note(NAME, found)
        }
        _ => Finding::ok(NAME, found),
    }
}

/// Names the folder, and where it would be made if it does not exist.
fn place(output: &Path, existing: &Path) -> String {
    match output == existing {
        true => format!("`{}`", output.display()),
        false => format!(
            "`{}` does not exist yet; `{}`",
            output.display(),
            existing.display()
        ),
    }
}

fn locks(works: Result<(), String>) -> Finding {
    let name = "file locks";
    match works {
        Ok(()) => Finding::ok(name, "two launches cannot take the same run folder"),
        Err(reason) => Finding::warning(
            name,
            format!("{reason}; a second launch is noticed 25 s later, by modification times"),
            "mount with locks (NFS: without nolock and local_lock; Lustre: -o flock)",
        ),
    }
}

/// Judges the time to append a line to a journal and sync it.
fn journal(synced_in: io::Result<Duration>) -> Finding {
    let name = "journal";
    let time = match synced_in {
        Ok(time) => time,
        Err(err) => {
            let found = format!("a test file cannot be written: {err}");
            let remedy = "look at quotas and the file system, or choose another --output";
            return Finding::failed(name, found, remedy);
        }
    };
    let found = format!("a line is synced in {:.1} ms", time.as_secs_f64() * 1e3);
    if time > SLOW_SYNC {
        let remedy = "choose a local disk with --output and copy the results";
        return Finding::warning(name, found, remedy);
    }
    Finding::ok(name, found)
}

/// A file in the output folder on which locks and syncs are tried, opened twice. It has no name
/// after it was opened, so that nothing stays behind, whatever happens.
struct Trial {
    first: File,
    second: File,
}

impl Trial {
    /// Makes the file, and removes its name.
    fn new(folder: &Path) -> io::Result<Self> {
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
    fn sync_time(&self) -> io::Result<Duration> {
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
    fn locks(&self) -> Result<(), String> {
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
}

/// Judges the bytes that the user may still write, if the file system tells, and the number of
/// files, on file systems that limit it.
fn room(free: Option<u64>, files: Option<u64>) -> Finding {
    let name = "disk space";
    let Some(free) = free else {
        return Finding::note(name, "the file system does not tell");
    };
    let found = format!("{} free", ByteSize(free));
    let remedy = "remove files, or choose another disk with --output";
    match (free, files) {
        (..LEAST, _) => Finding::failed(name, found, remedy),
        (_, Some(files @ ..FEW_FILES)) => {
            let found = format!("{found}, room for {files} more files");
            Finding::warning(name, found, remedy)
        }
        (..LITTLE, _) => {
            let found = format!("{found}: videos and datasets of a night may take more");
            Finding::warning(name, found, remedy)
        }
        _ => Finding::ok(name, found),
    }
}

#[cfg(test)]
mod tests {
    use jobs::finding::Grade;

    use super::*;

    #[test]
    fn what_a_folder_is_short_of_or_does_not_keep_is_told() {
        let room = |free, files| room(Some(free), files);
        let on = |kind| writable(Path::new("/data/out"), Path::new("/data"), kind);
        let synced = |ms| journal(Ok(Duration::from_millis(ms)));
        let without_locks = || locks(Err("locks are not supported".to_owned()));
        let there = "`/data/out` does not exist yet; `/data` can be written";
        for (found, health, told) in [
            (room(100 << 30, None), Grade::Ok, "100.0 GiB free"),
            (room(2 << 30, Some(1 << 20)), Grade::Warning, ""),
            (room(1 << 20, None), Grade::Failed, ""),
            (
                room(100 << 30, Some(5)),
                Grade::Warning,
                "100.0 GiB free, room for 5 more files",
            ),
            (on(None), Grade::Ok, there),
            (on(Some(TMPFS_MAGIC)), Grade::Warning, ""),
            (on(Some(RAMFS_MAGIC)), Grade::Warning, ""),
            (on(Some(OVERLAYFS_SUPER_MAGIC)), Grade::Note, ""),
            (locks(Ok(())), Grade::Ok, ""),
            (synced(3), Grade::Ok, "a line is synced in 3.0 ms"),
            (synced(201), Grade::Warning, ""),
            (
                journal(Err(io::Error::other("full"))),
                Grade::Failed,
                "a test file cannot be written: full",
            ),
            (without_locks(), Grade::Warning, ""),
        ] {
            assert_eq!(found.grade, health, "{found:?}");
            assert!(told.is_empty() || found.found == told, "{found:?}");
        }
        assert!(without_locks().remedy.unwrap().contains("nolock"));
    }

    #[test]
    fn a_folder_is_examined_and_left_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let all = examined(&folder.path().join("new/run"));
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, [NAME, "file locks", "disk space", "journal"]);
        assert!(all[0].grade < Grade::Failed, "{all:?}");
        assert_eq!(all[1].grade, Grade::Ok, "{all:?}");
        assert!(all[3].found.starts_with("a line is synced in "), "{all:?}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_in_which_nobody_can_write_fails() {
        // Not even root makes files there.
        let all = examined(Path::new("/proc/rrun/outputs"));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].grade, Grade::Failed);
        let found = &all[0].found;
        assert!(
            found.starts_with(
                "`/proc/rrun/outputs` does not exist yet; `/proc` cannot be written: "
            ),
            "{found}"
        );
    }

    #[test]
    fn a_file_is_no_folder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let all = examined(&file.path().join("run"));
        assert_eq!(all[0].grade, Grade::Failed);
    }
}
