//! Reads files of users safely: only regular files, and only up to a maximum size. Another user may
//! have made them, and every rank reads them again, which a pipe does not allow.
//!
//! Opening a FIFO blocks until a writer appears, and a device or a sparse file may be larger than
//! the memory.

use std::fs::{DirEntry, File, Metadata, TryLockError};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

/// Maximum size in bytes of a settings file or a report. A plan of 100 000 jobs has 120 MiB; a
/// report lists up to a thousand items of each kind.
pub const MAX_DOCUMENT_BYTES: u64 = 256 << 20;

/// Time to wait for a lock. A process that only checks whether a file is locked holds the lock much
/// shorter than this.
const LOOK: Duration = Duration::from_secs(1);

/// Time that a killed process may take to exit on a busy machine.
const EXIT: Duration = Duration::from_secs(5);

/// What tells one version of a file that is replaced as a whole from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    inode: u64,
    bytes: u64,
    modified_ns: i128,
}

impl FileVersion {
    /// Returns the version of a file; that of a missing one is the default.
    pub fn of(path: &Path) -> Self {
        std::fs::metadata(path).map_or_else(
            |_| Self::default(),
            |meta| Self {
                inode: meta.ino(),
                bytes: meta.len(),
                modified_ns: modified(&meta),
            },
        )
    }
}

/// Returns the modification time of a file in nanoseconds since 1970.
pub fn modified(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// Opens a regular file for reading. Symbolic links are followed.
///
/// # Errors
/// Returns the errors of the file system, and `InvalidInput` if the path is not a regular file.
/// Such a path is not opened.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening a FIFO blocks, and opening a tape device rewinds or starts it, so the type is checked
    // first.
    regular(&std::fs::metadata(path)?)?;
    let file = File::open(path)?;
    // The path may have been replaced in the meantime.
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of at most `limit` bytes.
///
/// # Errors
/// Returns the errors of [`open`], and `FileTooLarge` if the file is larger than `limit`.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = file.metadata()?.len();
    let mut text = Vec::new();
    if bytes <= limit {
        // The file may be growing.
        file.take(limit.saturating_add(1)).read_to_end(&mut text)?;
        bytes = text.len() as u64;
    }
    if bytes <= limit {
        return Ok(text);
    }
    let reason = format!("the file has {bytes} bytes, expected at most {limit}");
    Err(io::Error::new(ErrorKind::FileTooLarge, reason))
}

/// Reads a regular file of at most `limit` bytes as text.
///
/// # Errors
/// Returns the errors of [`read`], and `InvalidData` if the file is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, limit)?);
    text.map_err(|err| io::Error::new(ErrorKind::InvalidData, err.utf8_error()))
}

/// Reads a regular file of at most `limit` bytes as JSON.
///
/// # Errors
/// Returns the errors of [`read`] and of the JSON.
pub fn read_json<T: DeserializeOwned>(path: &Path, limit: u64) -> io::Result<T> {
    Ok(serde_json::from_slice(&read(path, limit)?)?)
}

/// Returns what is in a folder; in a missing one there is nothing.
///
/// # Errors
/// Returns an error if the folder exists and cannot be read.
pub fn entries(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<DirEntry>>> {
    let entries = match std::fs::read_dir(folder) {
        Err(err) if err.kind() == ErrorKind::NotFound => None,
        entries => Some(entries?),
    };
    Ok(entries.into_iter().flatten())
}

/// Removes a file, unless it is gone already.
///
/// # Errors
/// Returns the errors of the file system.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Locks a file exclusively. Waits a moment for processes that lock it only to check whether it is
/// locked.
///
/// # Errors
/// Returns `WouldBlock` if another process holds the lock, or the error of a file system without
/// locks.
pub(crate) fn lock(file: &File) -> Result<(), TryLockError> {
    let mut locked = Ok(());
    wait(LOOK, Duration::from_millis(5), || {
        locked = file.try_lock();
        !matches!(locked, Err(TryLockError::WouldBlock))
    });
    locked
}

/// Waits for `condition` as long as a process that was just killed may take to exit: it keeps its
/// files locked until its last thread has exited. Returns false if it does not become true.
pub(crate) fn wait_for(condition: impl FnMut() -> bool) -> bool {
    wait(EXIT, Duration::from_millis(50), condition)
}

#[expect(
    clippy::disallowed_methods,
    reason = "between two looks at what others do, with an end"
)]
fn wait(limit: Duration, between: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !condition() {
        if Instant::now() >= end {
            return false;
        }
        sleep(between);
    }
    true
}

fn regular(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let found = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(io::Error::new(
        ErrorKind::InvalidInput,
        format!("it is {found}, expected a regular file"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_a_device_a_socket_and_a_folder_are_refused_without_being_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, socket) = (dir.path().join("fifo"), dir.path().join("socket"));
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("zero")).unwrap();
        for (path, found) in [
            (fifo, "a FIFO"),
            (socket, "a socket"),
            (dir.path().join("zero"), "a device"),
            (dir.path().to_owned(), "a folder"),
        ] {
            let err = open(&path).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            let shown = err.to_string();
            assert_eq!(shown, format!("it is {found}, expected a regular file"));
        }
    }

    #[test]
    fn a_file_beyond_the_limit_is_refused_by_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let text = read(&path, 10).unwrap_err().to_string();
        let wanted = "the file has 1099511627776 bytes, expected at most 10";
        assert_eq!(text, wanted);
        std::fs::write(&path, "0123456789").unwrap();
        assert_eq!(read(&path, 10).unwrap(), b"0123456789");
    }
}
