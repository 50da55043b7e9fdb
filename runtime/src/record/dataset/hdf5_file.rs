//! What every step on a dataset file needs: its two groups, how it is opened, and its space on disk.

use std::fs::OpenOptions;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use hdf5::{FileBuilder, OpenMode};

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

/// Appends zeros, so that the file has the space before HDF5 needs it. Undoes this if the disk is
/// full.
pub(super) fn reserve(path: &Path, bytes: u64) -> io::Result<()> {
    static BLOCK: [u8; 1 << 16] = [0; 1 << 16];
    let mut file = OpenOptions::new().write(true).open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    let mut left = bytes;
    while left > 0 {
        let part = left.min(BLOCK.len() as u64);
        if let Err(err) = file.write_all(&BLOCK[..part as usize]) {
            file.set_len(end)?;
            return Err(err);
        }
        left -= part;
    }
    Ok(())
}
