//! One journal: a file, or bytes that another rank delivered.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use jobs::files;
use jobs::journal::naming;
use jobs::layout::journal_rank;

use crate::journals::{held, pieces};

/// Maximum size of a journal in bytes: some fifty million episodes of one rank.
const MAX_JOURNAL_BYTES: u64 = 64 << 30;

/// One journal.
#[derive(Debug)]
pub(crate) struct JournalSource {
    /// Path of the journal, relative to the run folder: `journal/journal_rank0.jsonl`.
    pub(crate) name: String,
    /// The rank, from the name of the journal.
    pub(crate) rank: usize,
    /// Whether a process is writing to the journal.
    pub(crate) is_held: bool,
    /// Device and inode of a file.
    id: Option<(u64, u64)>,
    body: Body,
}

/// Where the bytes are.
#[derive(Debug)]
enum Body {
    File { file: File, path: PathBuf, len: u64 },
    Bytes(Vec<u8>),
}

impl JournalSource {
    pub(crate) fn open(path: &Path, name: String, locked: &held::LockedFiles) -> io::Result<Self> {
        let file = files::open(path)?;
        let meta = file.metadata()?;
        if meta.len() > MAX_JOURNAL_BYTES {
            let found = format!(
                "the file has {} bytes, expected at most {MAX_JOURNAL_BYTES}",
                meta.len()
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, found));
        }
        let is_held = locked.contains(&file);
        let body = Body::File {
            file,
            path: path.to_owned(),
            len: meta.len(),
        };
        Ok(Self {
            name,
            rank: journal_rank(path).unwrap_or(0),
            is_held,
            id: Some((meta.dev(), meta.ino())),
            body,
        })
    }

    /// Creates the journal of a rank from bytes that it delivered.
    pub(crate) fn delivered(name: String, rank: usize, bytes: Vec<u8>) -> Self {
        Self {
            name,
            rank,
            is_held: false,
            id: None,
            body: Body::Bytes(bytes),
        }
    }

    /// Returns whether this is the same file as `earlier`, and no shorter.
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        let is_same = (&self.name, self.id) == (&earlier.name, earlier.id);
        is_same && !self.is_delivered() && self.len() >= earlier.len()
    }

    /// Returns the path of a journal that is a file.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.body {
            Body::File { path, .. } => Some(path),
            Body::Bytes(_) => None,
        }
    }

    /// Adds the name of the journal to an error.
    pub(crate) fn naming(&self, err: &io::Error) -> io::Error {
        naming(Path::new(&self.name), err)
    }

    /// Returns whether another rank delivered the journal.
    pub(crate) fn is_delivered(&self) -> bool {
        self.id.is_none()
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> u64 {
        match &self.body {
            Body::File { len, .. } => *len,
            Body::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Returns whether one of the two journals is a prefix of the other.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        pieces::pieces(0..self.len().min(other.len())).all(|range| {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            let read = self
                .fill(&mut ours, range.clone())
                .and_then(|()| other.fill(&mut theirs, range));
            read.is_ok() && ours == theirs
        })
    }

    /// Reads a range into `buffer`; less if the file has become shorter.
    pub(crate) fn fill(&self, buffer: &mut Vec<u8>, range: Range<u64>) -> io::Result<()> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        match &self.body {
            Body::Bytes(bytes) => {
                buffer.clear();
                // A vector's size fits into `usize`, so its offsets do, too.
                buffer.extend_from_slice(&bytes[range.start as usize..range.end as usize]);
            }
            Body::File { file, path, .. } => {
                // The old content of a reused buffer is overwritten, so it is not cleared first.
                buffer.resize((range.end - range.start) as usize, 0);
                let mut filled = 0;
                while filled < buffer.len() {
                    let found = file.read_at(&mut buffer[filled..], range.start + filled as u64);
                    match found.map_err(|err| naming(path, &err))? {
                        0 => break,
                        count => filled += count,
                    }
                }
                buffer.truncate(filled);
            }
        }
        Ok(())
    }
}
