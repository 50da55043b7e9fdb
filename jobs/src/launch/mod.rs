//! One launch a run folder: the lock that the launchers of one launch hold together, one file a node.
//!
//! ```text
//! <output>/launch.lock/<launch>-<host>-<pid>.json      who holds it; locked by its process, touched every 5 s
//!
//! take: make and lock one's own file ─► look at those of other launches ─┬ none lives: they are removed, the folder is ours
//!                                                                       └ one lives: ours is removed, refused by its name
//! ```
//! A launch makes its own file before it looks, so that of two that begin together at least one sees the other. Whether the
//! holder of a file lives is told by
//!
//! 1. the kernel's lock (`flock`) on it, which goes with the process, however that ends. A lock that is there is proof, on
//!    NFS and parallel file systems too. A lock that is *not* there is proof only on the machine that had it, as mounts with
//!    `nolock` or `local_lock` keep locks to themselves;
//! 2. for other machines, and where a file system has no locks: its time of modification, which its process sets anew every
//!    5 s. Two looks are compared with each other, never with a clock of ours: what stays the same for [`GONE`] is dead.
//!
//! Files have names of their own and are never written by others, so nothing depends on `O_EXCL` or `rename` being atomic
//! over NFS; times of modification are attributes, which a client asks the server for whenever a file is opened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use crate::files;
use crate::layout::RunFolder;
use crate::plan::PlanLock;
use crate::random;

mod holder;

pub use holder::Holder;
use holder::Life;

/// How often a holder touches its file.
const TOUCH: Duration = Duration::from_secs(5);

/// A file that was not touched for so long has no living holder: four touches, and what a busy NFS server needs.
pub const GONE: Duration = Duration::from_secs(25);

/// Between two looks at files of other machines.
const LOOK: Duration = Duration::from_secs(1);

/// The variable in which a launcher tells its ranks which launch they belong to.
pub const LAUNCH_VARIABLE: &str = "RRUN_LAUNCH_ID";

/// Why a run folder cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another launch has it.
    #[error("run folder `{}` is in use by {holder}: wait until that has ended, or name another --output", folder.display())]
    Held {
        /// The folder.
        folder: PathBuf,
        /// By whom.
        holder: Box<Holder>,
    },
    /// Files would be written elsewhere.
    #[error("`{}` is a symbolic link, and what is written to it would change a file elsewhere; a run folder has none", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// The lock cannot be written.
    #[error("cannot use run folder `{}`: {err}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What the file system says.
        #[source]
        err: io::Error,
    },
}

/// A name for a launch that no other has: 64 random bits in hex.
///
/// # Errors
/// When there is no `/dev/urandom`.
pub fn fresh_id() -> io::Result<String> {
    random::hex::<8>()
}

/// The part of one node in the lock of a launch. It goes with this value and with the process.
#[derive(Debug)]
pub struct LaunchLock {
    launch: String,
    path: PathBuf,
    file: Arc<File>,
    is_lost: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    touching: Option<JoinHandle<()>>,
}

impl LaunchLock {
    /// Takes `folder` for `launch`, beside other nodes of the same launch. `say` hears why it takes a while.
    ///
    /// # Errors
    /// [`LockError`]; nothing is left of the attempt then.
    pub fn take(
        folder: &RunFolder,
        launch: &str,
        say: impl FnMut(&str),
    ) -> Result<Self, LockError> {
        let io = |err| LockError::Io {
            folder: folder.root().to_owned(),
            err,
        };
        if let Some(path) = link_in(folder.root(), 1).map_err(io)? {
            return Err(LockError::Link { path });
        }
        fs::create_dir_all(folder.launches()).map_err(io)?;
        // Where there are locks, launches look one after the other.
        let _plan = PlanLock::to_change(folder).map_err(io)?;
        let mut holder = Holder::this_process(launch);
        let path = folder.launches().join(holder.file_name());
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(io)?;
        // Where there are no locks, the time of modification is what tells.
        holder.is_locked = files::lock(&file).is_ok();
        let written = serde_json::to_vec(&holder)
            .map_err(io::Error::from)
            .and_then(|text| {
                file.write_all(&text)?;
                file.sync_all()
            });
        let mut lock = Self {
            launch: launch.to_owned(),
            path,
            file: Arc::new(file),
            is_lost: Arc::default(),
            is_over: Arc::default(),
            touching: None,
        };
        written.map_err(io)?;
        if let Some(holder) = living(folder, launch, say).map_err(io)? {
            return Err(LockError::Held {
                folder: folder.root().to_owned(),
                holder: Box::new(holder),
            });
        }
        lock.touching = Some(lock.touch().map_err(io)?);
        Ok(lock)
    }

    /// Whose it is.
    pub fn launch(&self) -> &str {
        &self.launch
    }

    /// Whether another launch has taken this one for dead, which only happens to a process that stood still: what it does
    /// from then on is done twice.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Keeps the file's time of modification moving.
    fn touch(&self) -> io::Result<JoinHandle<()>> {
        let (file, path) = (Arc::clone(&self.file), self.path.clone());
        let (is_lost, is_over) = (Arc::clone(&self.is_lost), Arc::clone(&self.is_over));
        thread::Builder::new()
            .name("launch lock".to_owned())
            .spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if !is_same(&file, &path) {
                        is_lost.store(true, Ordering::Relaxed);
                        return;
                    }
                    // A disk that is away for a moment is asked again.
                    let _ = file.set_modified(SystemTime::now());
                    thread::park_timeout(TOUCH);
                }
            })
    }
}

impl Drop for LaunchLock {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(touching) = self.touching.take() {
            touching.thread().unpark();
            // It does not panic, and a lock that is given up has nobody to tell.
            let _ = touching.join();
        }
        if is_same(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
        // A child that was forked a moment ago shares the open file, and with it the lock.
        let _ = self.file.unlock();
    }
}

/// A symbolic link in the folder, or in one that is in it: somebody else may have made them.
fn link_in(folder: &Path, depth: usize) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            return Ok(Some(entry.path()));
        }
        if kind.is_dir()
            && depth > 0
            && let Some(link) = link_in(&entry.path(), depth - 1)?
        {
            return Ok(Some(link));
        }
    }
    Ok(None)
}

/// Whether `path` still names this file; what cannot be asked is taken to be so.
fn is_same(file: &File, path: &Path) -> bool {
    let Ok(ours) = file.metadata() else {
        return true;
    };
    match fs::symlink_metadata(path) {
        Ok(named) => (named.dev(), named.ino()) == (ours.dev(), ours.ino()),
        Err(err) => err.kind() != io::ErrorKind::NotFound,
    }
}

/// Whether a living process holds `folder`, for whichever launch; on this machine only, and without waiting.
pub fn holder(folder: &RunFolder) -> Option<Holder> {
    other_holder(folder, None)
}

/// As [`holder`], of another launch than `launch`.
pub fn other_holder(folder: &RunFolder, launch: Option<&str>) -> Option<Holder> {
    let files = others(folder, launch).unwrap_or_default();
    files
        .into_iter()
        .find_map(|path| Holder::read(&path).filter(|holder| holder.life(&path) == Life::Lives))
}

/// A living holder of another launch, once that is certain; files of the dead are removed.
#[expect(
    clippy::disallowed_methods,
    reason = "watches files of other machines, for a time that has an end"
)]
fn living(
    folder: &RunFolder,
    launch: &str,
    mut say: impl FnMut(&str),
) -> io::Result<Option<Holder>> {
    let mut watched: Vec<(PathBuf, Holder, Option<SystemTime>)> = Vec::new();
    for path in others(folder, Some(launch))? {
        // What is no lock of ours locks nothing.
        let Some(holder) = Holder::read(&path) else {
            continue;
        };
        match holder.life(&path) {
            Life::Lives => return Ok(Some(holder)),
            Life::Dead => remove(&path)?,
            Life::Unknown => {
                let touched = modified(&path);
                watched.push((path, holder, touched));
            }
        }
    }
    if let Some((_, holder, _)) = watched.first() {
        say(&format!(
            "waiting {} s to see whether {holder} still lives",
            GONE.as_secs()
        ));
    }
    let end = Instant::now() + GONE;
    while !watched.is_empty() && Instant::now() < end {
        thread::sleep(LOOK);
        watched.retain(|(path, ..)| path.exists());
        let moved = watched
            .iter()
            .position(|(path, _, touched)| modified(path) != *touched && path.exists());
        if let Some(moved) = moved {
            return Ok(Some(watched.swap_remove(moved).1));
        }
    }
    watched.iter().try_for_each(|(path, ..)| remove(path))?;
    Ok(None)
}

/// Files of launches other than `launch`, by name.
fn others(folder: &RunFolder, launch: Option<&str>) -> io::Result<Vec<PathBuf>> {
    let own = launch.map(|launch| format!("{launch}-"));
    let mut paths = Vec::new();
    let entries = match fs::read_dir(folder.launches()) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(paths),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".json") && own.as_ref().is_none_or(|own| !name.starts_with(own)) {
            paths.push(folder.launches().join(&*name));
        }
    }
    paths.sort();
    Ok(paths)
}

/// As the server knows it: opening a file is what makes an NFS client ask.
fn modified(path: &Path) -> Option<SystemTime> {
    File::open(path)
        .and_then(|file| file.metadata())
        .and_then(|meta| meta.modified())
        .ok()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests;
