//! The lock of a run folder: only one launch at a time may write to it. Each node of a launch holds
//! one lock file.
//!
//! ```text
//! <output>/launch.lock/<launch>-<host>-<pid>.json   the holder; locked by its process, touched
//!                                                   every 5 s
//!
//! take: create our file ─► check those of other launches ─┬ all dead: remove them, we hold the
//!                                                         │           folder
//!                                                         └ one alive: remove ours, refuse, and
//!                                                                      name its holder
//! ```
//! A launch creates its own file before it checks the others, so that of two launches that start
//! together at least one sees the other. Two things tell whether the holder of a file is alive:
//!
//! 1. The kernel's lock (`flock`) on the file, which the kernel releases when the process ends, for
//!    whatever reason. A lock that is held proves that the holder is alive, on NFS and parallel
//!    file systems too. A missing lock proves its death only on the machine that held it, because
//!    mounts with `nolock` or `local_lock` do not share locks.
//! 2. For other machines, and for file systems without locks: the modification time, which the
//!    holder updates every 5 s. Two readings are compared with each other, never with a local
//!    clock. A holder whose modification time does not change for [`GONE`] is dead.
//!
//! Every file has a unique name and is written only by its own process, so nothing depends on
//! `O_EXCL` or `rename` being atomic over NFS. Modification times are attributes, which an NFS
//! client asks the server for whenever a file is opened.

use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use holder::HolderState;

use crate::layout::RunFolder;
use crate::refusal::Refusal;
use crate::time::now;
use crate::{files, random};

mod holder;

pub use holder::{LivingLaunch, LockHolder, Pulse};

/// Interval at which a holder updates the modification time of its file.
const TOUCH: Duration = Duration::from_secs(5);

/// Time without an update after which a holder counts as dead: four updates, and a margin for a
/// busy NFS server.
pub const GONE: Duration = Duration::from_secs(25);

/// Interval between two checks of the files of other machines.
const LOOK: Duration = Duration::from_secs(1);

/// Environment variable with the id of the launch, which the launcher sets for its ranks.
pub const LAUNCH_VARIABLE: &str = "RRUN_LAUNCH_ID";

/// The reason why a run folder cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another launch holds the run folder, or it contains a symbolic link. A retry is refused, too.
    #[error(transparent)]
    Refused(Refusal),
    /// The lock file cannot be written.
    #[error(transparent)]
    Failed(Refusal),
}

/// Refuses a run folder that another launch holds.
pub(crate) fn held(folder: &RunFolder, holder: &LockHolder) -> Refusal {
    Refusal::new(format_args!(
        "run folder `{}` is in use by {holder}: wait until it ends, or choose another --output",
        folder.root().display()
    ))
}

/// Returns a unique id for a launch: 64 random bits in hexadecimal.
///
/// # Errors
/// Returns an error if `/dev/urandom` cannot be read.
pub fn fresh_id() -> io::Result<String> {
    random::hex::<8>()
}

/// One node's share of the lock of a launch. It is released when this value is dropped, or when the
/// process ends.
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
    /// Locks `folder` for `launch`. Other nodes of the same launch may hold it, too. `say` is
    /// called with the reason if this takes a while.
    ///
    /// # Errors
    /// Returns [`LockError`]; the new lock file is then removed.
    pub fn take(
        folder: &RunFolder,
        launch: &str,
        say: impl FnMut(&str),
    ) -> Result<Self, LockError> {
        let place = format!("cannot use run folder `{}`", folder.root().display());
        let io = |err| LockError::Failed(Refusal::at(&place, err));
        if let Some(path) = link_in(folder.root(), 1).map_err(io)? {
            return Err(LockError::Refused(Refusal::new(format_args!(
                "`{}` is a symbolic link, which a run folder must not contain: writing to it would \
                 change a file elsewhere",
                path.display()
            ))));
        }
        fs::create_dir_all(folder.launches()).map_err(io)?;
        // With file locks, only one launch at a time runs this check.
        let _plan = PlanLock::to_change(folder).map_err(io)?;
        let mut holder = LockHolder::this_process(launch);
        let path = folder.launches().join(holder.file_name());
        let mut file = File::create_new(&path).map_err(io)?;
        // Without file locks, the modification time shows that this process is alive.
        holder.is_locked = files::lock(&file).is_ok();
        let text = serde_json::to_vec(&holder).map_err(io::Error::from);
        let written = text.and_then(|text| file.write_all(&text));
        let written = written.and_then(|()| file.sync_all());
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
            return Err(LockError::Refused(held(folder, &holder)));
        }
        lock.touching = Some(lock.touch().map_err(io)?);
        Ok(lock)
    }

    /// Returns the id of the launch that holds the lock.
    pub fn launch(&self) -> &str {
        &self.launch
    }

    /// Returns whether another launch has removed this lock because it considered the holder dead.
    /// This happens only to a process that was suspended; whatever it does from then on is done
    /// twice.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Starts a thread that keeps updating the modification time of the file.
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
                    // A disk may be unavailable for a moment; the next update tries again.
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
            // The thread does not panic, and there is nobody to report an error to.
            let _ = touching.join();
        }
        if is_same(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
        // A child that was just forked shares the open file, and with it the lock.
        let _ = self.file.unlock();
    }
}

/// Returns a symbolic link in the folder or, to the given depth, in its subfolders. Another user
/// may have made it.
fn link_in(folder: &Path, depth: usize) -> io::Result<Option<PathBuf>> {
    for entry in files::entries(folder)? {
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

/// Returns whether `path` still names this file. If that cannot be determined, the answer is yes.
fn is_same(file: &File, path: &Path) -> bool {
    let Ok(ours) = file.metadata() else {
        return true;
    };
    match fs::symlink_metadata(path) {
        Ok(named) => (named.dev(), named.ino()) == (ours.dev(), ours.ino()),
        Err(err) => err.kind() != io::ErrorKind::NotFound,
    }
}

/// Returns the live process that holds `folder`, for any launch. Sees only processes of this
/// machine, and does not wait.
pub fn holder(folder: &RunFolder) -> Option<LockHolder> {
    other_holder(folder, None)
}

/// Like [`holder`], for launches other than `launch`.
pub fn other_holder(folder: &RunFolder, launch: Option<&str>) -> Option<LockHolder> {
    let files = others(folder, launch).unwrap_or_default();
    files.into_iter().find_map(|path| {
        LockHolder::read(&path).filter(|holder| holder.life(&path) == HolderState::Lives)
    })
}

/// Returns the launches that hold `folder`, after waiting until it is certain that one is alive, or
/// that none is. `say` is called with the reason if this takes a while.
pub fn holders(folder: &RunFolder, say: impl FnMut(&str)) -> Vec<LivingLaunch> {
    certain(say, |pulse| pulse.look(folder, now()))
}

/// Looks at lock files until it is certain that one of the launches is alive, or that none is.
#[expect(
    clippy::disallowed_methods,
    reason = "watches files of other machines, for a time that has an end"
)]
fn certain(
    mut say: impl FnMut(&str),
    look: impl Fn(&mut Pulse) -> Vec<LivingLaunch>,
) -> Vec<LivingLaunch> {
    let mut pulse = Pulse::default();
    let mut has_said = false;
    loop {
        let alive = look(&mut pulse);
        // One node that is alive is enough.
        let is_certain = alive.iter().any(|launch| launch.is_certain);
        let Some(first) = alive.first().filter(|_| !is_certain) else {
            return alive;
        };
        if !std::mem::replace(&mut has_said, true) {
            let (seconds, holder) = (GONE.as_secs(), &first.holder);
            say(&format!(
                "waiting up to {seconds} s to see whether {holder} is still alive"
            ));
        }
        thread::sleep(LOOK);
    }
}

/// Returns a live holder of another launch, after waiting until that is certain. Removes the files
/// of dead holders.
fn living(
    folder: &RunFolder,
    launch: &str,
    say: impl FnMut(&str),
) -> io::Result<Option<LockHolder>> {
    let paths = others(folder, Some(launch))?;
    let is_lock = |path: &&PathBuf| match LockHolder::read(path) {
        Some(holder) => {
            holder.wait_for_its_end(path);
            true
        }
        None => false,
    };
    let paths: Vec<_> = paths.iter().filter(is_lock).cloned().collect();
    let alive = certain(say, |pulse| pulse.look_at(paths.clone(), now()));
    if let Some(launch) = alive.into_iter().find(|launch| launch.is_certain) {
        return Ok(Some(launch.holder));
    }
    paths.iter().try_for_each(|path| files::remove(path))?;
    Ok(None)
}

/// Returns the lock files of launches other than `launch`, sorted by name.
fn others(folder: &RunFolder, launch: Option<&str>) -> io::Result<Vec<PathBuf>> {
    let own = launch.map(|launch| format!("{launch}-"));
    let is_of_another = |entry: &DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.ends_with(".json") && own.as_ref().is_none_or(|own| !name.starts_with(own))
    };
    let mut entries: Vec<_> = files::entries(&folder.launches())?.collect::<io::Result<_>>()?;
    entries.retain(is_of_another);
    let mut paths: Vec<_> = entries.iter().map(DirEntry::path).collect();
    paths.sort();
    Ok(paths)
}

/// Returns the modification time as the file server reports it: an NFS client asks the server when
/// a file is opened.
fn modified(path: &Path) -> Option<SystemTime> {
    files::open(path)
        .and_then(|file| file.metadata())
        .and_then(|meta| meta.modified())
        .ok()
}

/// A lock on the plan of a run folder. A process that changes the plan holds it exclusively, and no
/// journal is opened meanwhile. Whoever writes the report holds it, too, so that nobody else does. It
/// is released when this value is dropped or the process ends. On a file system without locks it has
/// no effect.
#[derive(Debug)]
pub struct PlanLock {
    _file: File,
}

impl PlanLock {
    /// Takes the lock exclusively: waits until no other process changes or reads the plan.
    ///
    /// # Errors
    /// Returns the error of opening the lock file.
    pub fn to_change(folder: &RunFolder) -> io::Result<Self> {
        let file = open(folder)?;
        wait(|| file.lock());
        Ok(Self { _file: file })
    }

    /// Takes the lock shared: waits until no process changes the plan.
    pub(crate) fn to_look(folder: &RunFolder) -> io::Result<Self> {
        let file = open(folder)?;
        wait(|| file.lock_shared());
        Ok(Self { _file: file })
    }
}

fn open(folder: &RunFolder) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.plan_lock())
}

/// Retries when a signal interrupts the wait; any other error means that the file system has no
/// locks.
fn wait(lock: impl Fn() -> io::Result<()>) {
    while lock().is_err_and(|err| err.kind() == io::ErrorKind::Interrupted) {}
}

#[cfg(test)]
mod tests;
