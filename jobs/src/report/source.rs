//! Sources of journal lines: files, which are read in pieces, or bytes that another rank delivered.
//!
//! A journal may be larger than memory. At most one piece of a journal is in memory for each
//! thread; a line that is needed again is read from its [`Place`].

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::files;
use crate::journal::{Line, naming};
use crate::layout::{RunFolder, journal_rank};
use crate::report::{held, pieces};
use crate::threads;

/// Bytes that are read at once to look up a line, because consecutive look-ups are close together.
const WINDOW: u64 = 64 * 1024;

/// Maximum size of a journal in bytes: some fifty million episodes of one rank.
const MAX_JOURNAL_BYTES: u64 = 64 << 30;

/// The journals of a run.
#[derive(Debug, Default)]
pub struct Journals {
    sources: Vec<Source>,
}

/// One journal.
#[derive(Debug)]
pub(super) struct Source {
    /// Path of the journal, relative to the run folder: `journal/journal_rank0.jsonl`.
    pub(super) name: String,
    /// The rank, from the name of the journal.
    pub(super) rank: usize,
    /// Whether a process is writing to the journal.
    pub(super) is_held: bool,
    body: Body,
}

#[derive(Debug)]
enum Body {
    File { file: File, path: PathBuf, len: u64 },
    Bytes(Vec<u8>),
}

/// Position of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) source: u32,
    /// Length in bytes, without the line end.
    pub(super) len: u32,
    pub(super) offset: u64,
}

impl Journals {
    /// Opens the journals of a run folder as they are now; lines that are appended later are not
    /// seen. A folder without journals is no error.
    ///
    /// # Errors
    /// Returns an error, with the name of the journal, if one exists and cannot be opened.
    pub fn of(folder: &RunFolder) -> io::Result<Self> {
        let held = held::inodes();
        let mut sources = Vec::new();
        for path in crate::journal::files(&folder.journals())? {
            sources.push(
                Source::open(&path, folder.relative(&path), &held)
                    .map_err(|err| naming(&path, &err))?,
            );
        }
        Ok(Self { sources })
    }

    /// Adds the journal that `rank` delivered. If the folder is shared, the same journal is already
    /// there; then the longer one is kept.
    #[must_use]
    pub fn and_delivered(mut self, rank: usize, bytes: Vec<u8>) -> Self {
        let name = RunFolder::new(Path::new(""))
            .journal(rank)
            .to_string_lossy()
            .into_owned();
        let delivered = Source {
            name,
            rank,
            is_held: false,
            body: Body::Bytes(bytes),
        };
        let same = |source: &Source| source.name == delivered.name && source.agrees(&delivered);
        match self.sources.iter_mut().find(|source| same(source)) {
            Some(source) if source.len() >= delivered.len() => {}
            Some(source) => *source = delivered,
            None => self.sources.push(delivered),
        }
        self
    }

    /// Creates a journal in memory with the lines of one rank.
    ///
    /// # Panics
    /// Never: every line can be serialized.
    pub fn of_lines(lines: &[Line]) -> Self {
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, line)
                .expect("keys are texts, and a vector takes every byte");
            bytes.push(b'\n');
        }
        Self::default().and_delivered(0, bytes)
    }

    /// Returns whether a process is writing to one of the journals. Unlike
    /// [`crate::journal::in_use`] this takes no lock, so it never hinders a rank that starts.
    pub fn in_use(&self) -> bool {
        self.sources.iter().any(|source| source.is_held)
    }

    /// Returns the paths of the journals that are files, in order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().filter_map(|source| match &source.body {
            Body::File { path, .. } => Some(path.as_path()),
            Body::Bytes(_) => None,
        })
    }

    /// Writes the complete lines of one journal, each as `change` appends it with its line end.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub(crate) fn copy(
        &self,
        index: usize,
        change: impl Fn(&[u8], &mut Vec<u8>) + Sync,
        to: &mut impl io::Write,
    ) -> io::Result<()> {
        let source = &self.sources[index];
        let work: Vec<_> = pieces::pieces(source.len()).collect();
        let one = |range: &Range<u64>, buffer: &mut Vec<u8>| -> io::Result<Vec<u8>> {
            let mut changed = Vec::new();
            pieces::read(source, range.clone(), buffer)?
                .lines()
                .for_each(|(_, line)| change(line, &mut changed));
            Ok(changed)
        };
        let mut written = Ok(());
        threads::in_order(&work, one, |_, changed| {
            if written.is_ok() {
                written = to.write_all(&changed);
            }
        })?;
        written
    }

    pub(super) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Returns a reader that looks up lines.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader {
            sources: &self.sources,
            windows: self.sources.iter().map(|_| Window::default()).collect(),
        }
    }
}

impl Source {
    fn open(path: &Path, name: String, held: &held::Inodes) -> io::Result<Self> {
        let file = files::open(path)?;
        let meta = file.metadata()?;
        if meta.len() > MAX_JOURNAL_BYTES {
            let found = format!(
                "the file has {} bytes, at most {MAX_JOURNAL_BYTES} are read",
                meta.len()
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, found));
        }
        let body = Body::File {
            file,
            path: path.to_owned(),
            len: meta.len(),
        };
        Ok(Self {
            name,
            rank: journal_rank(path).unwrap_or(0),
            is_held: held.contains(&meta),
            body,
        })
    }

    /// Adds the name of the journal to an error.
    pub(super) fn naming(&self, err: &io::Error) -> io::Error {
        naming(Path::new(&self.name), err)
    }

    /// Returns whether another rank delivered the journal.
    pub(super) fn is_delivered(&self) -> bool {
        matches!(self.body, Body::Bytes(_))
    }

    /// Returns the size in bytes.
    pub(super) fn len(&self) -> u64 {
        match &self.body {
            Body::File { len, .. } => *len,
            Body::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Returns whether one of the two journals is a prefix of the other.
    fn agrees(&self, other: &Self) -> bool {
        const STEP: u64 = 1 << 20;
        let common = self.len().min(other.len());
        (0..common.div_ceil(STEP)).all(|step| {
            let range = step * STEP..((step + 1) * STEP).min(common);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            let read = self
                .fill(&mut ours, range.clone())
                .and_then(|()| other.fill(&mut theirs, range));
            read.is_ok() && ours == theirs
        })
    }

    /// Reads a range into `buffer`; less if the file has become shorter.
    pub(super) fn fill(&self, buffer: &mut Vec<u8>, range: Range<u64>) -> io::Result<()> {
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

/// Looks up lines, with one window of each journal in memory.
pub(super) struct Reader<'a> {
    sources: &'a [Source],
    windows: Vec<Window>,
}

#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Reader<'_> {
    /// Returns the line at `place`, without its line end.
    ///
    /// # Errors
    /// Returns the errors of the file system, and `UnexpectedEof` if the file has become shorter.
    pub(super) fn line(&mut self, place: Place) -> io::Result<&[u8]> {
        let index = place.source as usize;
        let (source, window) = (&self.sources[index], &mut self.windows[index]);
        let end = place.offset + u64::from(place.len);
        if place.offset < window.start || end > window.start + window.bytes.len() as u64 {
            // Copies of an environment end their episodes slightly out of order, so an earlier line
            // may be next.
            window.start = place.offset.saturating_sub(WINDOW / 4);
            source.fill(
                &mut window.bytes,
                window.start..end.max(window.start + WINDOW),
            )?;
        }
        let at = (place.offset - window.start) as usize;
        let shorter = || {
            io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("`{}` became shorter", source.name),
            )
        };
        window
            .bytes
            .get(at..at + place.len as usize)
            .ok_or_else(shorter)
    }
}
