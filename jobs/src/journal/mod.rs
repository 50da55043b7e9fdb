//! The journal of a rank: an append-only file with one JSON line for each event, synced to disk
//! when it is written, or with other lines soon after ([`Journal::note`], [`Journal::sync`]).
//!
//! Only the last line can be torn by a crash. A torn line has no line end; the next writer cuts it
//! off, and the work that it described is done again. Report and resume depend on the plan and the
//! journals, and on nothing else.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::episode::DemoRef;
use crate::files;

mod line;
mod stamp;

pub use line::{
    Blame, Claim, Decision, EPISODE, EnvLost, EpisodeStart, JobEnd, JobStart, Line, PolicyFiles,
    Quantiles, Question, ROUNDING_VARIABLES, RankEnd, RankGpu, RankStart, Verdict,
};
pub(crate) use stamp::AcceptedJob;
pub use stamp::{Accepted, LineOrigin, Provenance, Stamp, Stamps};

/// Maximum length of a line in bytes. The line of an episode has about 1 KB; the longest lines
/// contain the last output of a simulator.
pub const MAX_LINE_BYTES: u64 = 16 << 20;

/// The contents of a journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The complete lines that count, in file order.
    pub lines: Vec<Line>,
    /// Line numbers, from 1, of complete lines that cannot be parsed. A crash does not cause these,
    /// so they are reported.
    pub damaged: Vec<usize>,
    /// Number of bytes in a torn last line.
    pub torn: u64,
    /// Line numbers, from 1, of lines that belong to another run, to a job that has changed since,
    /// or to an episode that is not in the plan.
    pub foreign: Vec<usize>,
}

impl Contents {
    /// Reads a journal. The memory it needs depends on the number of lines, not on the size.
    ///
    /// # Errors
    /// Returns the errors of the reader, and an error for a line longer than [`MAX_LINE_BYTES`].
    pub fn of(journal: impl BufRead, accepted: &Accepted) -> io::Result<Self> {
        let (mut contents, mut lines) = (Self::default(), Lines::of(journal));
        while let Some((number, text)) = lines.next()? {
            match accepted.judge(text) {
                Ok((line, LineOrigin::Own)) => contents.lines.push(line),
                Ok(_) => contents.foreign.push(number),
                Err(_) => contents.damaged.push(number),
            }
        }
        contents.torn = lines.line.len() as u64;
        Ok(contents)
    }
}

/// Returns the number of bytes up to the end of the last complete line.
fn whole(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1)
}

/// Like [`whole`], for a file of `len` bytes. Reads the file backwards from its end.
fn whole_of(file: &File, len: u64) -> io::Result<u64> {
    const STEP: u64 = 64 << 10;
    let (mut end, mut bytes) = (len, Vec::new());
    while end > 0 {
        let start = end.saturating_sub(STEP);
        bytes.resize((end - start) as usize, 0);
        file.read_exact_at(&mut bytes, start)?;
        match whole(&bytes) {
            0 if len - start > MAX_LINE_BYTES => return Err(too_long()),
            0 => end = start,
            whole => return Ok(start + whole as u64),
        }
    }
    Ok(0)
}

/// Returns the paths of all `journal_rank<r>.jsonl` files in a folder, sorted by name. A missing
/// folder has none.
///
/// # Errors
/// Returns an error if the folder exists and cannot be read.
pub fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_journal = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("journal_rank") && name.ends_with(".jsonl")
    };
    let paths = files::entries(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths: Vec<_> = paths.collect::<io::Result<_>>()?;
    paths.retain(is_journal);
    paths.sort();
    Ok(paths)
}

/// Reads all journals of a folder, see [`read`]. A missing folder has none.
///
/// # Errors
/// Returns an error if the folder or a file exists and cannot be read.
pub fn read_all(folder: &Path, accepted: &Accepted) -> io::Result<Vec<Contents>> {
    let paths = files(folder)?;
    paths.iter().map(|path| read(path, accepted)).collect()
}

/// Reads a journal: the lines that are results of the accepted runs.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn read(path: &Path, accepted: &Accepted) -> io::Result<Contents> {
    let contents = files::open(path).and_then(|file| Contents::of(BufReader::new(file), accepted));
    contents.map_err(|err| naming(path, &err))
}

/// Parses a line. That of an episode, of which there may be a million, takes no detour through its
/// `type`.
fn parsed(text: &[u8]) -> serde_json::Result<Line> {
    match text.starts_with(EPISODE) {
        // Checking a whole line for UTF-8 is faster than checking its many strings.
        true if let Ok(text) = std::str::from_utf8(text) => {
            serde_json::from_str(text).map(Line::Episode)
        }
        _ => serde_json::from_slice(text),
    }
}

/// Calls `on` for every line of a journal that can be parsed, with its text. The positions of jobs
/// are not set.
///
/// # Errors
/// Returns the errors of the file system.
pub(crate) fn each(path: &Path, mut on: impl FnMut(Line, &[u8])) -> io::Result<()> {
    let mut lines = Lines::open(path)?;
    while let Some((_, text)) = lines.next().map_err(|err| naming(path, &err))? {
        if let Ok(line) = parsed(text) {
            on(line, text);
        }
    }
    Ok(())
}

/// Returns the demonstrations that the journals of a folder name, also those of lines that do not
/// count.
///
/// # Errors
/// Returns the errors of the file system.
pub fn demos(folder: &Path) -> io::Result<BTreeSet<DemoRef>> {
    let mut demos = BTreeSet::new();
    for path in files(folder)? {
        each(&path, |line, _| {
            if let Line::Episode(episode) = line {
                demos.extend(episode.dataset);
            }
        })?;
    }
    Ok(demos)
}

/// The complete lines of a journal that are not empty.
pub(crate) struct Lines<J> {
    journal: J,
    number: usize,
    /// The last line that was read; in the end, what there is of a torn one.
    line: Vec<u8>,
}

impl Lines<BufReader<File>> {
    /// Opens a journal to read it.
    ///
    /// # Errors
    /// Returns the errors of the file system, with the path.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = files::open(path).map_err(|err| naming(path, &err))?;
        Ok(Self::of(BufReader::new(file)))
    }
}

impl<J: BufRead> Lines<J> {
    pub(crate) fn of(journal: J) -> Self {
        let (number, line) = (0, Vec::new());
        Self {
            journal,
            number,
            line,
        }
    }

    /// Returns the next line, without its end, and its number from 1.
    ///
    /// # Errors
    /// Returns the errors of [`read_line`].
    pub(crate) fn next(&mut self) -> io::Result<Option<(usize, &[u8])>> {
        loop {
            read_line(&mut self.journal, &mut self.line)?;
            self.number += 1;
            match self.line.as_slice() {
                b"\n" => {}
                [.., b'\n'] => break,
                _ => return Ok(None),
            }
        }
        Ok(self
            .line
            .strip_suffix(b"\n")
            .map(|text| (self.number, text)))
    }
}

/// Reads up to and including the next line end, or to the end of the file. An empty `line` means
/// the end of the file.
///
/// # Errors
/// Returns the errors of the file system, and an error for a line longer than [`MAX_LINE_BYTES`].
pub fn read_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    file.take(MAX_LINE_BYTES + 1).read_until(b'\n', line)?;
    if line.len() as u64 > MAX_LINE_BYTES {
        Err(too_long())
    } else {
        Ok(())
    }
}

/// Returns the error for a line longer than [`MAX_LINE_BYTES`].
pub fn too_long() -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("it has a line of more than {MAX_LINE_BYTES} bytes"),
    )
}

/// Adds the path of the file to an error.
pub fn naming(path: &Path, err: &io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("`{}`: {err}", path.display()))
}

/// Returns whether a process has a journal of this folder open for writing.
pub fn in_use(folder: &Path) -> bool {
    let mut files = files(folder).unwrap_or_default().into_iter();
    files.any(|path| is_held(&path))
}

/// Returns whether a process has this journal open for writing.
pub fn is_held(path: &Path) -> bool {
    // Opening a FIFO would block until it has a reader.
    if !std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return false;
    }
    let file = OpenOptions::new().write(true).open(path);
    file.is_ok_and(|file| match file.try_lock() {
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(_)) => false,
        Ok(()) => {
            // Unlock explicitly, as `Journal::drop` does. A file system that cannot unlock has
            // not locked either.
            let _ = file.unlock();
            false
        }
    })
}

/// Returns whether a journal of this folder has a complete line, whether or not it can be parsed.
/// Reads no further than the first one.
///
/// # Errors
/// Returns an error if the folder or a file exists and cannot be read.
pub fn begun(folder: &Path) -> io::Result<bool> {
    for path in files(folder)? {
        let mut lines = Lines::open(&path)?;
        let first = lines.next().map_err(|err| naming(&path, &err))?;
        if first.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The journal of one rank, open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    begun: u64,
    torn: u64,
    /// Number of bytes of its lines.
    end: u64,
    /// Number of bytes that the last sync has covered.
    synced: u64,
    stamps: Stamps,
}

impl Journal {
    /// Opens or creates a journal and locks it exclusively. Cuts off a torn last line.
    ///
    /// # Errors
    /// Returns the errors of the file system, and `ResourceBusy` if another process has the journal
    /// open.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        // The kernel releases the lock when the process ends, for whatever reason. On a file system
        // without locks nothing else prevents two writers.
        if let Err(TryLockError::WouldBlock) = files::lock(&file) {
            return Err(io::Error::new(
                ErrorKind::ResourceBusy,
                "another evaluation is running in this folder",
            ));
        }
        let len = file.metadata()?.len();
        let begun = whole_of(&file, len)?;
        file.set_len(begun)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self {
            file,
            path: path.to_owned(),
            begun,
            torn: len - begun,
            end: begun,
            synced: begun,
            stamps: Stamps::default(),
        })
    }

    /// Adds the ids of run, launch and job to every line that is written from now on.
    #[must_use]
    pub fn stamped(mut self, stamps: Stamps) -> Self {
        self.stamps = stamps;
        self
    }

    /// Returns whether the journal had complete lines when it was opened.
    pub fn was_begun(&self) -> bool {
        self.begun > 0
    }

    /// Returns the number of bytes of a torn last line that were cut off when the journal was
    /// opened.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// Appends a line and syncs it to disk, with every line before it.
    ///
    /// # Errors
    /// Returns the errors of [`Journal::note`] and [`Journal::sync`].
    pub fn append(&mut self, line: &Line) -> io::Result<()> {
        self.note(line)?;
        self.sync()
    }

    /// Appends a line without waiting for the disk: until the next sync, it survives a crash of the
    /// process, but not of the machine. If that fails, what there is of the line is removed again,
    /// so that the next one starts on a line of its own.
    ///
    /// # Errors
    /// Returns the errors of the file system, for example for a full disk. The line is then not in
    /// the journal.
    pub fn note(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        self.stamps.of(line).seal(&mut text);
        text.push(b'\n');
        if let Err(err) = self.file.write_all(&text) {
            self.cut(self.end)?;
            return Err(err);
        }
        self.end += text.len() as u64;
        Ok(())
    }

    /// Syncs the lines to disk, unless they are there already.
    ///
    /// # Errors
    /// Returns the errors of the file system. The lines since the last sync are then not in the
    /// journal.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.synced == self.end {
            return Ok(());
        }
        if let Err(err) = self.file.sync_data() {
            self.cut(self.synced)?;
            return Err(err);
        }
        self.synced = self.end;
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.file.seek(SeekFrom::Start(len))?;
        self.end = len;
        Ok(())
    }

    /// Returns the path of the journal.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Journal {
    /// Unlocks the journal. Closing the file is not enough: a child that another thread has forked
    /// and that has not called `exec` yet shares the open file, and with it the lock.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests;
