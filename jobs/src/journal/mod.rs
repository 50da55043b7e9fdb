//! The journal: one JSON line for everything that happened in a rank, synced when it is written.
//!
//! It only grows. A line that a crash tore is the last one, has no line end, and is cut off by the next writer; what
//! it was about happens again. Report and resume are functions of plan and journals and of nothing else.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::files;

mod line;
mod stamp;

pub use line::{
    EnvLost, EpisodeStart, Gpu, JobEnd, JobStart, Line, PolicyFiles, Quantiles, RankEnd, RankStart,
};
pub use stamp::{Accepted, Provenance, Stamp, Stamps};
pub(crate) use stamp::{Origin, Planned, Subject};

/// Bytes of a line at most. One of an episode has about 1 KB; the last words of a simulator are the longest.
pub(crate) const MAX_LINE_BYTES: u64 = 16 << 20;

/// What a journal file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Whole lines, in order.
    pub lines: Vec<Line>,
    /// Lines that say something else, by number from 1; never written by a crash, so worth a word.
    pub damaged: Vec<usize>,
    /// Bytes of a torn last line.
    pub torn: u64,
    /// Lines of another run, of a job that has changed since, or of an episode that the plan does not have, by number from 1.
    pub foreign: Vec<usize>,
}

/// Reads the bytes of a journal. Any bytes are read to something.
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

/// Bytes up to the end of the last whole line.
fn whole(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1)
}

/// As [`whole`], of a file of `len` bytes, which is read from its end.
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

/// Every `journal_rank<r>.jsonl` of a folder, by name; none is no error.
///
/// # Errors
/// When the folder is there and cannot be read.
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

/// Reads every journal of a folder; none is no error.
///
/// # Errors
/// When the folder or a file is there and cannot be read.
pub fn read_all(folder: &Path) -> io::Result<Vec<(PathBuf, Contents)>> {
    files(folder)?
        .into_iter()
        .map(|path| read(&path, |_, _| true).map(|contents| (path, contents)))
        .collect()
}

/// As [`read_all`], with the lines that are results of one run.
///
/// # Errors
/// As [`read_all`].
pub fn read_own(folder: &Path, accepted: &Accepted) -> io::Result<Vec<(PathBuf, Contents)>> {
    let files = files(folder)?.into_iter();
    files
        .map(|path| {
            read(&path, |line, text| is_own(line, text, accepted)).map(|contents| (path, contents))
        })
        .collect()
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

/// What a line says of where it is from.
pub(crate) fn stamp_of(line: &[u8]) -> Stamp {
    serde_json::from_slice(line).unwrap_or_default()
}

/// Reads one journal: what it holds is what its lines say, not what its size is.
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

/// Hands over every line of a journal that says something, with where it is from.
///
/// # Errors
/// Those of the file system, and those of `on`.
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

/// Hands over every whole line that is not empty, with its number from 1, and gives the bytes of a torn last line.
fn each_line(path: &Path, mut on: impl FnMut(usize, &[u8]) -> io::Result<()>) -> io::Result<u64> {
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

/// Reads up to the next line end, or to the end of the file; nothing more is there if the line is empty.
///
/// # Errors
/// Those of the file system, and a line beyond [`MAX_LINE_BYTES`].
pub(crate) fn read_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    file.take(MAX_LINE_BYTES + 1).read_until(b'\n', line)?;
    if line.len() as u64 > MAX_LINE_BYTES {
        Err(too_long())
    } else {
        Ok(())
    }
}

/// What is said of a line beyond [`MAX_LINE_BYTES`].
pub(crate) fn too_long() -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("it has a line of more than {MAX_LINE_BYTES} bytes"),
    )
}

fn open_to_read(path: &Path) -> io::Result<File> {
    crate::files::open(path).map_err(|err| naming(path, &err))
}

/// Names the file of an error.
pub(crate) fn naming(path: &Path, err: &io::Error) -> io::Error {
    io::Error::new(err.kind(), format!("`{}`: {err}", path.display()))
}

/// Whether a process is writing a journal of this folder.
pub fn in_use(folder: &Path) -> bool {
    // Opening a FIFO would wait for its reader.
    let is_regular =
        |path: &PathBuf| std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let busy = |path: PathBuf| {
        let file = OpenOptions::new().write(true).open(path);
        file.is_ok_and(|file| match file.try_lock() {
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(_)) => false,
            Ok(()) => {
                // As in `Journal`'s `drop`; a file system that cannot unlock has not locked either.
                let _ = file.unlock();
                false
            }
        })
    };
    files(folder)
        .unwrap_or_default()
        .into_iter()
        .filter(is_regular)
        .any(busy)
}

/// Whether a journal of this folder has a whole line, whatever that says; reads no further than to the first.
///
/// # Errors
/// When the folder or a file is there and cannot be read.
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

/// The first life of a rank that a folder's journals tell of; reads one line of each.
///
/// # Errors
/// When the folder or a file is there and cannot be read.
pub fn first_rank(folder: &Path) -> io::Result<Option<RankStart>> {
    for path in files(folder)? {
        let mut line = Vec::new();
        read_line(&mut BufReader::new(open_to_read(&path)?), &mut line)
            .map_err(|err| naming(&path, &err))?;
        if let Ok(Line::Rank(start)) = serde_json::from_slice(&line) {
            return Ok(Some(start));
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
    stamps: Stamps,
}

impl Journal {
    /// Opens or makes a journal for this process alone; a torn last line is cut off.
    ///
    /// # Errors
    /// Those of the file system, and `ResourceBusy` while another process has it open.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        // The lock goes with the process, however that ends. A file system without locks has no other guard either.
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
            stamps: Stamps::default(),
        })
    }

    /// Puts on every line of which run, launch and job it is.
    #[must_use]
    pub fn stamped(mut self, stamps: Stamps) -> Self {
        self.stamps = stamps;
        self
    }

    /// Whether it had lines when it was opened.
    pub fn was_begun(&self) -> bool {
        self.begun > 0
    }

    /// Bytes of a torn last line that were cut off when it was opened.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// Appends a line and syncs it to the disk. A line that does not fit is taken back, so what follows stays whole.
    ///
    /// # Errors
    /// Those of the file system (a full disk); the line is then not in the journal.
    pub fn append(&mut self, line: &Line) -> io::Result<()> {
        self.write(line, File::sync_data)
    }

    /// As [`Journal::append`], without waiting for the disk: the line survives the process, and not the machine.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn note(&mut self, line: &Line) -> io::Result<()> {
        self.write(line, |_| Ok(()))
    }

    fn write(&mut self, line: &Line, sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        self.stamps.of(line).seal(&mut text);
        text.push(b'\n');
        let start = self.file.stream_position()?;
        let written = self.file.write_all(&text).and_then(|()| sync(&self.file));
        if written.is_err() {
            self.file.set_len(start)?;
            self.file.seek(SeekFrom::Start(start))?;
        }
        written
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Journal {
    /// Closing the file is not enough: a child that another thread has forked and that has not called `exec` yet has
    /// the same open file, and with it the lock.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests;
