//! Whoever changes the plan of a run folder does so alone, and not while a journal is being opened.

use std::fs::{File, OpenOptions};
use std::io;

use crate::layout::RunFolder;

/// A lock on the plan of a run folder, which goes with this value and with the process. A file system without locks has
/// none.
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits until nobody else changes the plan or looks at it.
    pub(crate) fn to_change(folder: &RunFolder) -> io::Result<Self> {
        let file = open(folder)?;
        wait(|| file.lock());
        Ok(Self { _file: file })
    }

    /// Waits until nobody changes the plan.
    pub(super) fn to_look(folder: &RunFolder) -> io::Result<Self> {
        let file = open(folder)?;
        wait(|| file.lock_shared());
        Ok(Self { _file: file })
    }
}

fn open(folder: &RunFolder) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(folder.plan_lock())
}

/// A signal interrupts the wait; any other error means that the file system has no locks.
fn wait(lock: impl Fn() -> io::Result<()>) {
    while lock().is_err_and(|err| err.kind() == io::ErrorKind::Interrupted) {}
}
