//! What every step on a dataset file needs: its two groups, how it is opened, and its space on disk.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use hdf5::{FileBuilder, OpenMode};
use nix::errno::Errno;

/// The group that readers see.
pub(super) const DATA: &str = "data";
/// The group that is being written. Its name sorts before `data`, so that a lookup of `data`
/// succeeds even while the library removes this name at the end.
pub(super) const BUILDING: &str = "building";

/// Opens a file with the settings that all dataset files need.
pub(super) fn open(path: &Path, mode: OpenMode) -> hdf5::Result<hdf5::File> {
    let mut builder = FileBuilder::new();
    builder
        .with_fapl(|fapl| fapl.libver_earliest().file_locking(false))
        .open_as(path, mode)
}

/// Waits until the system has written the file to disk.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.sync_data()
}

/// Appends room to the file, so that it has the space before HDF5 needs it, without writing it.
/// Undoes this if the disk is full.
pub(super) fn reserve(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let end = file.metadata()?.len();
    let (from, room) = (end.cast_signed(), bytes.cast_signed());
    let reserved = loop {
        match nix::fcntl::posix_fallocate(&file, from, room) {
            Err(Errno::EINTR) => {}
            reserved => break reserved,
        }
    };
    if reserved.is_err() {
        file.set_len(end)?;
    }
    Ok(reserved?)
}
