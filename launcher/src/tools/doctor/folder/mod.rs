//! Checks the output folder: that files can be made and locked there, how much space is left, and
//! how long a line of a journal takes.

mod trial;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jobs::bytes::ByteSize;
use nix::sys::statvfs::statvfs;

use crate::tools::doctor::check::Check;
use crate::tools::doctor::diagnosis::Diagnosis;
use crate::tools::doctor::folder::trial::Trial;

/// Name of the first result, and of the check.
const NAME: &str = "output folder";

/// Below this, nothing can be recorded.
const LEAST: u64 = 64 << 20;

/// A night with videos takes more.
const LITTLE: u64 = 10 << 30;

/// Fewest files that still can be made.
const FEW_FILES: u64 = 1000;

/// A journal is synced after each episode, which waits for it.
const SLOW_SYNC: Duration = Duration::from_millis(200);

/// Returns the check of a folder that need not exist.
pub(super) fn check(output: PathBuf) -> Check {
    let if_it_hangs = "the file system does not answer: see `mount` and `dmesg`, or choose another \
                       --output";
    Check::new(NAME, if_it_hangs, move || examined(&output))
}

fn examined(output: &Path) -> Vec<Diagnosis> {
    let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    let existing = output.ancestors().find(|folder| folder.exists());
    let existing = existing.unwrap_or(Path::new("/"));
    let trial = match Trial::new(existing) {
        Ok(trial) => trial,
        Err(err) => return vec![not_writable(&output, existing, &err)],
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = existing.canonicalize().ok();
    let mount = mount.and_then(|folder| mount_of(&folder, &mounts));
    let mut all = vec![writable(&output, existing, mount), locks(trial.locks())];
    all.extend(trial.clock_skew_s().and_then(skew));
    all.push(Room::of(existing).judged());
    all.push(journal(trial.sync_time()));
    all
}

fn not_writable(output: &Path, existing: &Path, err: &std::io::Error) -> Diagnosis {
    let place = place(output, existing);
    let found = format!("{place} cannot be written: {err}");
    let remedy = "choose a folder of yours with --output, or ask for write access";
    Diagnosis::failed(NAME, found, remedy)
}

/// Judges a folder on a file system, of which the mount point and the type are known.
fn writable(output: &Path, existing: &Path, mount: Option<(String, String)>) -> Diagnosis {
    let place = place(output, existing);
    let Some((point, kind)) = mount else {
        return Diagnosis::ok(NAME, format!("{place} can be written"));
    };
    let found = format!("{place} can be written, {kind} at {point}");
    match kind.as_str() {
        "tmpfs" | "ramfs" => {
            let remedy = "choose another --output for results that are to last";
            let found = format!("{found}: it takes memory, and is lost at a reboot");
            Diagnosis::warning(NAME, found, remedy)
        }
        "overlay" | "overlayfs" | "aufs" => {
            let found = format!("{found}: it is lost with its container unless it is a volume");
            Diagnosis::note(NAME, found)
        }
        _ => Diagnosis::ok(NAME, found),
    }
}

/// Returns the last of the longest mount points above a folder, and the type of its file system, as
/// `ext4`. `mounts` is in the format of `/proc/self/mountinfo` (man 5 proc_pid_mountinfo).
fn mount_of(folder: &Path, mounts: &str) -> Option<(String, String)> {
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        // The kernel writes blanks and backslashes as octal numbers.
        let point = mount.split(' ').nth(4)?.replace("\\040", " ");
        let point = point.replace("\\011", "\t").replace("\\134", "\\");
        Some((point, source.split(' ').next()?.to_owned()))
    });
    mounts
        .filter(|(point, _)| folder.starts_with(point))
        .max_by_key(|(point, _)| point.len())
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

fn locks(works: Result<(), String>) -> Diagnosis {
    let name = "file locks";
    match works {
        Ok(()) => Diagnosis::ok(name, "two launches cannot take the same run folder"),
        Err(reason) => Diagnosis::warning(
            name,
            format!("{reason}; a second launch is noticed 25 s later, by modification times"),
            "mount with locks (NFS: without nolock and local_lock; Lustre: -o flock)",
        ),
    }
}

/// Returns a warning if the clock of the file server differs from that of this machine.
fn skew(seconds: f64) -> Option<Diagnosis> {
    (seconds.abs() > 5.0).then(|| {
        let found = format!("the file server's clock differs by {seconds:+.0} s");
        let remedy = "synchronise both clocks (NTP)";
        Diagnosis::warning("file times", found, remedy)
    })
}

/// Judges the time to append a line to a journal and sync it.
fn journal(synced_in: io::Result<Duration>) -> Diagnosis {
    let name = "journal";
    let time = match synced_in {
        Ok(time) => time,
        Err(err) => {
            let found = format!("a test file cannot be written: {err}");
            let remedy = "look at quotas and the file system, or choose another --output";
            return Diagnosis::failed(name, found, remedy);
        }
    };
    let found = format!("a line is synced in {:.1} ms", time.as_secs_f64() * 1e3);
    if time > SLOW_SYNC {
        let remedy = "choose a local disk with --output and copy the results";
        return Diagnosis::warning(name, found, remedy);
    }
    Diagnosis::ok(name, found)
}

/// Space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// Bytes that the user may still write; `None` if the file system does not tell.
    free: Option<u64>,
    /// Files that the user may still make, on file systems that limit them.
    files: Option<u64>,
}

impl Room {
    fn of(folder: &Path) -> Self {
        let found = statvfs(folder).ok();
        let bytes = found.map(|found| {
            let block = found.fragment_size();
            found.blocks_available().saturating_mul(block)
        });
        let files = found.filter(|found| found.files() > 0);
        Self {
            free: bytes,
            files: files.map(|found| found.files_available()),
        }
    }

    fn judged(self) -> Diagnosis {
        let name = "disk space";
        let Some(free) = self.free else {
            return Diagnosis::note(name, "the file system does not tell");
        };
        let found = format!("{} free", ByteSize(free));
        let remedy = "remove files, or choose another disk with --output";
        match (free, self.files) {
            (..LEAST, _) => Diagnosis::failed(name, found, remedy),
            (_, Some(files @ ..FEW_FILES)) => Diagnosis::warning(
                name,
                format!("{found}, room for {files} more files"),
                remedy,
            ),
            (..LITTLE, _) => {
                let found = format!("{found}: videos and datasets of a night may take more");
                Diagnosis::warning(name, found, remedy)
            }
            _ => Diagnosis::ok(name, found),
        }
    }
}

#[cfg(test)]
mod tests;
