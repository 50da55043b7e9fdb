//! The lock on the plan of a run folder. A process that changes the plan holds it exclusively, and
//! no journal is opened meanwhile. Whoever writes the report holds it, too, so that nobody else does.

use std::fs::{File, OpenOptions};
use std::io;

use crate::layout::RunFolder;

/// A lock on the plan of a run folder. It is released when this value is dropped or the process
/// ends. On a file system without locks it has no effect.
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
