//! The files in which the ranks of an evaluation tell how far they are, see [`jobs::pulse`].

use std::io;
use std::path::PathBuf;

use jobs::pulse::Pulse;
use tempfile::TempDir;

/// A folder with a file per rank of this node, which goes when it is dropped. It is on a disk of
/// this node, because every rank writes once a second.
#[derive(Debug)]
pub struct PulseFolder {
    folder: TempDir,
}

impl PulseFolder {
    /// Creates the folder, with mode 0700, in `TMPDIR`.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn create() -> io::Result<PulseFolder> {
        let folder = tempfile::Builder::new().prefix("rrun_pulse_").tempdir()?;
        Ok(PulseFolder { folder })
    }

    /// Returns the path of the file of the rank at `index` on this node.
    pub fn path(&self, index: usize) -> PathBuf {
        self.folder.path().join(index.to_string())
    }

    /// Returns the pulse of the rank at `index`, whose process is `pid`.
    pub fn read(&self, index: usize, pid: i32) -> Option<Pulse> {
        Pulse::read(&self.path(index), pid.cast_unsigned())
    }
}
