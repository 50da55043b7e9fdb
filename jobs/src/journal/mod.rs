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

mod decision;
mod line;
mod stamp;

pub use decision::{Decision, Question, Verdict};
pub use line::{
    Blame, EnvLost, EpisodeStart, JobEnd, JobStart, Line, PolicyFiles, Quantiles,
    ROUNDING_VARIABLES, RankEnd, RankGpu, RankStart,
};
pub(crate) use stamp::Planned;
pub use stamp::{Accepted, LineOrigin, Provenance, Stamp, Stamps, Subject};

/// Maximum length of a line in bytes. The line of an episode has about 1 KB; the longest lines
/// contain the last output of a simulator.
pub const MAX_LINE_BYTES: u64 = 16 << 20;

/// The parsed contents of a journal file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The complete lines, in file order.
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

/// Parses the bytes of a journal. This never fails: what cannot be parsed is counted.
pub fn parse(bytes: &[u8]) -> Contents {
    let whole = whole(bytes);
    let mut contents = Contents {
        torn: (bytes.len() - whole) as u64,
        ..Contents::default()
    };
    for (index, line) in bytes[..whole].split(|byte| *byte == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(line) => contents.lines.push(line),
            Err(_) if line.is_empty() => {}
            Err(_) => contents.damaged.push(index + 1),
        }
    }
    contents
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
    let entries = match std::fs::read_dir(folder) {
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("journal_rank") && name.ends_with(".jsonl") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads all journals of a folder. A missing folder has none.
///
/// # Errors
/// Returns an error if the folder or a file exists and cannot be read.
pub fn read_all(folder: &Path) -> io::Result<Vec<(PathBuf, Contents)>> {
    files(folder)?
        .into_iter()
        .map(|path| read(&path, |_, _| true).map(|contents| (path, contents)))
        .collect()
}

/// Like [`read_all`], with only those lines that are results of the accepted runs.
///
/// # Errors
/// Returns the errors of [`read_all`].
pub fn read_own(folder: &Path, accepted: &Accepted) -> io::Result<Vec<(PathBuf, Contents)>> {
    let files = files(folder)?.into_iter();
    files
        .map(|path| read_one(&path, accepted).map(|contents| (path, contents)))
        .collect()
}

/// Like [`read_own`], of one journal.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn read_one(path: &Path, accepted: &Accepted) -> io::Result<Contents> {
    read(path, |line, text| is_own(line, text, accepted))
}

fn is_own(line: &Line, text: &[u8], accepted: &Accepted) -> bool {
    let stamp = stamp_of(text);
    accepted
        .origin(
            line.subject(),
            stamp.run.as_deref(),
            stamp.fingerprint.as_deref(),
        )
        .counts()
}

/// Parses the stamp of a line: which run and which version of the job it belongs to.
pub fn stamp_of(line: &[u8]) -> Stamp {
    serde_json::from_slice(line).unwrap_or_default()
}

/// Reads one journal line by line. The memory it needs depends on the number of lines, not on the
/// file size.
fn read(path: &Path, is_own: impl Fn(&Line, &[u8]) -> bool) -> io::Result<Contents> {
    let mut contents = Contents::default();
    contents.torn = each_line(path, |number, text| {
        match serde_json::from_slice(text) {
            Ok(line) if is_own(&line, text) => contents.lines.push(line),
            Ok(_) => contents.foreign.push(number),
            Err(_) => contents.damaged.push(number),
        }
        Ok(())
    })?;
    Ok(contents)
}

/// Calls `on` for every line of a journal that can be parsed, with the line's stamp.
///
/// # Errors
/// Returns the errors of the file system and of `on`.
pub(crate) fn each(
    path: &Path,
    mut on: impl FnMut(Line, Stamp) -> io::Result<()>,
) -> io::Result<()> {
    let lines = each_line(path, |_, text| match serde_json::from_slice(text) {
        Ok(line) => on(line, stamp_of(text)),
        Err(_) => Ok(()),
    });
    lines.map(drop)
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
            Ok(())
        })?;
    }
    Ok(demos)
}

/// Calls `on` for every complete line that is not empty, with its number from 1. Returns the number
/// of bytes of a torn last line.
///
/// # Errors
/// Returns the errors of the file system and of `on`, after which no further line is read.
pub(crate) fn each_line(
    path: &Path,
    mut on: impl FnMut(usize, &[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut file = BufReader::new(open_to_read(path)?);
    let (mut number, mut line) = (0, Vec::new());
    loop {
        read_line(&mut file, &mut line).map_err(|err| naming(path, &err))?;
        number += 1;
        match line.strip_suffix(b"\n") {
            None => return Ok(line.len() as u64),
            Some(b"") => {}
            Some(text) => on(number, text)?,
        }
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

fn open_to_read(path: &Path) -> io::Result<File> {
    crate::files::open(path).map_err(|err| naming(path, &err))
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
        let mut file = BufReader::new(open_to_read(&path)?);
        let mut line = Vec::new();
        loop {
            read_line(&mut file, &mut line).map_err(|err| naming(&path, &err))?;
            match &line[..] {
                [.., b'\n'] if line.len() > 1 => return Ok(true),
                [b'\n'] => {}
                _ => break,
            }
        }
    }
    Ok(false)
}

/// Returns the first rank start found in the journals of a folder. Reads one line of each journal.
///
/// # Errors
/// Returns an error if the folder or a file exists and cannot be read.
pub fn first_rank(folder: &Path) -> io::Result<Option<RankStart>> {
    for path in files(folder)? {
        let mut line = Vec::new();
        read_line(&mut BufReader::new(open_to_read(&path)?), &mut line)
            .map_err(|err| naming(&path, &err))?;
        if let Ok(Line::Rank(start)) = serde_json::from_slice(&line) {
            return Ok(Some(*start));
        }
    }
    Ok(None)
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
