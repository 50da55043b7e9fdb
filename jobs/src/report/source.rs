//! Where journal lines are: files, which are read in pieces, or bytes that another rank delivered.
//!
//! A journal may be larger than memory. Nothing here holds more of one than a piece for each thread, so whoever needs a
//! line again asks for it by its [`Place`].

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

/// Bytes that are read at a time to look a line up: lines that are asked for one after the other are close together.
const WINDOW: u64 = 64 * 1024;

/// Bytes of a journal at most: some fifty million episodes of one rank.
const MAX_JOURNAL_BYTES: u64 = 64 << 30;

/// The journals of a run.
#[derive(Debug, Default)]
pub struct Journals {
    sources: Vec<Source>,
}

/// One journal.
#[derive(Debug)]
pub(super) struct Source {
    /// As the run folder has it: `journal/journal_rank0.jsonl`.
    pub(super) name: String,
    /// Whose it is by its name.
    pub(super) rank: usize,
    /// A process is writing to it.
    pub(super) is_held: bool,
    body: Body,
}

#[derive(Debug)]
enum Body {
    File { file: File, path: PathBuf, len: u64 },
    Bytes(Vec<u8>),
}

/// Where a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) source: u32,
    /// Bytes, without the line end.
    pub(super) len: u32,
    pub(super) offset: u64,
}

impl Journals {
    /// Opens the journals of a run folder as they are now; what is appended later is not seen. None is no error.
    ///
    /// # Errors
    /// When one is there and cannot be opened, naming it.
    pub fn of(folder: &RunFolder) -> io::Result<Self> {
        let held = held::inodes();
        let mut sources = Vec::new();
        for path in crate::journal::files(&folder.journals())? {
            sources.push(Source::open(&path, folder.relative(&path), &held).map_err(|err| naming(&path, &err))?);
        }
        Ok(Self { sources })
    }

    /// Adds what `rank` delivered. Where the folder is shared its journal is there already: then the longer one counts.
    #[must_use]
    pub fn and_delivered(mut self, rank: usize, bytes: Vec<u8>) -> Self {
        let name = RunFolder::new(Path::new("")).journal(rank).to_string_lossy().into_owned();
        let delivered = Source { name, rank, is_held: false, body: Body::Bytes(bytes) };
        let same = |source: &Source| source.name == delivered.name && source.agrees(&delivered);
        match self.sources.iter_mut().find(|source| same(source)) {
            Some(source) if source.len() >= delivered.len() => {}
            Some(source) => *source = delivered,
            None => self.sources.push(delivered),
        }
        self
    }

    /// Journals in memory: the lines of one rank.
    ///
    /// # Panics
    /// Never: a line of ours has a text.
    pub fn of_lines(lines: &[Line]) -> Self {
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, line).expect("keys are texts, and a vector takes every byte");
            bytes.push(b'\n');
        }
        Self::default().and_delivered(0, bytes)
    }

    /// Whether a process is writing to one of them. Unlike [`crate::journal::in_use`] this touches no lock, so it is never
    /// in the way of a rank that begins.
    pub fn in_use(&self) -> bool {
        self.sources.iter().any(|source| source.is_held)
    }

    /// The files, in order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().filter_map(|source| match &source.body {
            Body::File { path, .. } => Some(path.as_path()),
            Body::Bytes(_) => None,
        })
    }

    /// Writes the whole lines of one journal, each as `change` appends it with its end.
    ///
    /// # Errors
    /// Those of the file system.
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
            pieces::read(source, range.clone(), buffer)?.lines().for_each(|(_, line)| change(line, &mut changed));
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

    /// Looks lines up.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { sources: &self.sources, windows: self.sources.iter().map(|_| Window::default()).collect() }
    }
}

impl Source {
    fn open(path: &Path, name: String, held: &held::Inodes) -> io::Result<Self> {
        let file = files::open(path)?;
        let meta = file.metadata()?;
        if meta.len() > MAX_JOURNAL_BYTES {
            let found = format!("the file has {} bytes, at most {MAX_JOURNAL_BYTES} are read", meta.len());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, found));
        }
        let body = Body::File { file, path: path.to_owned(), len: meta.len() };
        Ok(Self { name, rank: journal_rank(path).unwrap_or(0), is_held: held.contains(&meta), body })
    }

    /// Names the journal of an error.
    pub(super) fn naming(&self, err: &io::Error) -> io::Error {
        naming(Path::new(&self.name), err)
    }

    /// Whether another rank has sent it.
    pub(super) fn is_delivered(&self) -> bool {
        matches!(self.body, Body::Bytes(_))
    }

    /// Bytes.
    pub(super) fn len(&self) -> u64 {
        match &self.body {
            Body::File { len, .. } => *len,
            Body::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Whether one of both is the beginning of the other.
    fn agrees(&self, other: &Self) -> bool {
        const STEP: u64 = 1 << 20;
        let common = self.len().min(other.len());
        (0..common.div_ceil(STEP)).all(|step| {
            let range = step * STEP..((step + 1) * STEP).min(common);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            let read = self.fill(&mut ours, range.clone()).and_then(|()| other.fill(&mut theirs, range));
            read.is_ok() && ours == theirs
        })
    }

    /// Puts a part of it into `buffer`; less where the file has become shorter.
    pub(super) fn fill(&self, buffer: &mut Vec<u8>, range: Range<u64>) -> io::Result<()> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        match &self.body {
            Body::Bytes(bytes) => {
                buffer.clear();
                // Positions in a vector are those of memory.
                buffer.extend_from_slice(&bytes[range.start as usize..range.end as usize]);
            }
            Body::File { file, path, .. } => {
                // What is in a buffer that is used again is written over and not cleared before.
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

/// Looks lines up, one window of each journal in memory.
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
    /// The line at `place`, without its end.
    ///
    /// # Errors
    /// Those of the file system, and `UnexpectedEof` where the file has become shorter.
    pub(super) fn line(&mut self, place: Place) -> io::Result<&[u8]> {
        let index = place.source as usize;
        let (source, window) = (&self.sources[index], &mut self.windows[index]);
        let end = place.offset + u64::from(place.len);
        if place.offset < window.start || end > window.start + window.bytes.len() as u64 {
            // Copies of an environment end their episodes a little out of order: some of what is before may be next.
            window.start = place.offset.saturating_sub(WINDOW / 4);
            source.fill(&mut window.bytes, window.start..end.max(window.start + WINDOW))?;
        }
        let at = (place.offset - window.start) as usize;
        let shorter = || io::Error::new(io::ErrorKind::UnexpectedEof, format!("`{}` became shorter", source.name));
        window.bytes.get(at..at + place.len as usize).ok_or_else(shorter)
    }
}
