//! Reads zip files whose entries are stored without compression, as torch writes packages.
//!
//! ```text
//! entries … │ central directory │ [zip64 end, locator] │ end of central directory, comment
//! ```
//! APPNOTE.TXT 6.3.10 of PKWARE, sections 4.3 and 4.4. No number of the file is trusted: sizes and
//! offsets have to lie in the file, and numbers of entries and bytes have limits, so that a file
//! from a stranger costs no more memory than [`MOST_DIRECTORY`].

use std::io::{self, Read, Seek, SeekFrom, Write};

/// Largest central directory in bytes. Torch writes about 150 bytes for each file.
const MOST_DIRECTORY: u64 = 16 << 20;

/// Size in bytes of the record at the end, without its comment.
const END: usize = 22;

/// Longest comment in bytes.
const MOST_COMMENT: usize = u16::MAX as usize;

const END_SIGNATURE: &[u8] = b"PK\x05\x06";
const END_64_SIGNATURE: &[u8] = b"PK\x06\x06";
const LOCATOR_SIGNATURE: &[u8] = b"PK\x06\x07";
const DIRECTORY_SIGNATURE: &[u8] = b"PK\x01\x02";
const LOCAL_SIGNATURE: &[u8] = b"PK\x03\x04";

/// Size in bytes of an entry of the central directory, without name, extra field and comment.
const DIRECTORY_ENTRY: usize = 46;

/// Size in bytes of the header before the bytes of an entry, without name and extra field.
const LOCAL_HEADER: usize = 30;

/// Kind of the extra field that has numbers of 64 bits.
const EXTRA_64: u16 = 1;

/// Stands for a number that is in the extra field.
const IN_EXTRA: u32 = u32::MAX;

/// The method of entries that are not compressed.
const STORED: u16 = 0;

/// The flag of entries that are encrypted.
const ENCRYPTED: u16 = 1;

/// Returns the error for a file that is no zip file of stored entries; it has the kind
/// [`InvalidData`](io::ErrorKind::InvalidData).
fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// Returns the error for a part that is not where it should be, or is something else.
fn damaged(part: &str) -> io::Error {
    invalid(format!("its {part} is damaged"))
}

/// A file within a zip file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, with folders.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Where its local header is, in bytes from the start.
    header: u64,
    is_stored: bool,
}

impl Entry {
    /// Refuses an entry whose bytes are not in the file as they are.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.is_stored {
            true => Ok(()),
            false => Err(invalid(format!(
                "`{}` is compressed or encrypted, which torch never does",
                self.name
            ))),
        }
    }
}

/// An open zip file.
#[derive(Debug)]
pub struct Archive<F> {
    file: F,
    length: u64,
    entries: Vec<Entry>,
}

impl<F: Read + Seek> Archive<F> {
    /// Reads the central directory of a zip file.
    ///
    /// # Errors
    /// Returns [`InvalidData`](io::ErrorKind::InvalidData) for a file that is something else, or is
    /// damaged.
    pub fn open(mut file: F) -> io::Result<Self> {
        let length = file.seek(SeekFrom::End(0))?;
        let (start, size) = directory(&mut file, length)?;
        if size > MOST_DIRECTORY {
            return Err(invalid(format!(
                "its central directory has {size} bytes, expected at most {MOST_DIRECTORY}"
            )));
        }
        let bytes = read_at(&mut file, length, start, size, "central directory")?;
        let entries = entries(&bytes).ok_or_else(|| damaged("central directory"))?;
        Ok(Self {
            file,
            length,
            entries,
        })
    }

    /// Returns all entries, in the order of the central directory.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns an entry by its name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Returns the bytes of an entry of at most `most` bytes.
    ///
    /// # Errors
    /// Returns an error for an entry that is too large, or is not in the file.
    pub fn read(&mut self, entry: &Entry, most: u64) -> io::Result<Vec<u8>> {
        let Entry { name, size, .. } = entry;
        if *size > most {
            let reason = format!("`{name}` has {size} bytes, expected at most {most}");
            return Err(invalid(reason));
        }
        let start = self.start(entry)?;
        read_at(&mut self.file, self.length, start, entry.size, "entry")
    }

    /// Copies the bytes of an entry.
    ///
    /// # Errors
    /// Returns an error for an entry that is not in the file, and the errors of both files.
    pub fn copy(&mut self, entry: &Entry, to: &mut impl Write) -> io::Result<()> {
        let start = self.start(entry)?;
        within(self.length, start, entry.size, "entry")?;
        self.file.seek(SeekFrom::Start(start))?;
        let copied = io::copy(&mut (&mut self.file).take(entry.size), to)?;
        match copied == entry.size {
            true => Ok(()),
            false => Err(damaged("entry")),
        }
    }

    /// Returns where the bytes of an entry begin.
    fn start(&mut self, entry: &Entry) -> io::Result<u64> {
        entry.check()?;
        let size = LOCAL_HEADER as u64;
        let header = read_at(&mut self.file, self.length, entry.header, size, "entry")?;
        let lengths = header.starts_with(LOCAL_SIGNATURE).then(|| {
            let [name, extra] = [26, 28].map(|at| u16_at(&header, at).unwrap_or(0));
            u64::from(name) + u64::from(extra)
        });
        let start = entry.header.checked_add(size).zip(lengths);
        let start = start.and_then(|(start, lengths)| start.checked_add(lengths));
        start.ok_or_else(|| damaged("entry"))
    }
}

/// Returns where the central directory begins, and its size.
fn directory<F: Read + Seek>(file: &mut F, length: u64) -> io::Result<(u64, u64)> {
    let tail = length.min((END + MOST_COMMENT) as u64);
    let bytes = read_at(file, length, length - tail, tail, "end")?;
    let at = (0..bytes.len().saturating_sub(END - 1))
        .rev()
        .find(|&at| is_end(&bytes[at..]))
        .ok_or_else(|| invalid("it does not end as a zip file does"))?;
    let end = &bytes[at..];
    let damaged = || damaged("end");
    let size = u32_at(end, 12).ok_or_else(damaged)?;
    let start = u32_at(end, 16).ok_or_else(damaged)?;
    if size != IN_EXTRA && start != IN_EXTRA && u16_at(end, 10) != Some(u16::MAX) {
        return Ok((start.into(), size.into()));
    }
    let locator = at.checked_sub(20).map(|at| &bytes[at..]);
    let locator = locator.filter(|locator| locator.starts_with(LOCATOR_SIGNATURE));
    let place = locator.and_then(|locator| u64_at(locator, 8));
    let record = read_at(file, length, place.ok_or_else(damaged)?, 56, "end")?;
    if !record.starts_with(END_64_SIGNATURE) {
        return Err(damaged());
    }
    let [size, start] = [40, 48].map(|at| u64_at(&record, at).ok_or_else(damaged));
    Ok((start?, size?))
}

/// Returns whether the record at the end begins here: its comment then reaches to the end.
fn is_end(bytes: &[u8]) -> bool {
    bytes.starts_with(END_SIGNATURE)
        && u16_at(bytes, 20).is_some_and(|comment| END + usize::from(comment) == bytes.len())
}

/// Returns the entries of a central directory; `None` if it is damaged.
fn entries(mut directory: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !directory.is_empty() {
        if !directory.starts_with(DIRECTORY_SIGNATURE) {
            return None;
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| u16_at(directory, at).map(usize::from));
        let (name, extra, comment) = (name?, extra?, comment?);
        let texts = directory.get(DIRECTORY_ENTRY..)?;
        let (flags, method) = (u16_at(directory, 8)?, u16_at(directory, 10)?);
        let mut numbers = [24, 20, 42].map(|at| u32_at(directory, at).map(u64::from));
        wide_numbers(texts.get(name..name + extra)?, &mut numbers)?;
        let [size, compressed, header] = numbers;
        entries.push(Entry {
            name: String::from_utf8(texts.get(..name)?.to_vec()).ok()?,
            size: size?,
            header: header?,
            is_stored: method == STORED && flags & ENCRYPTED == 0 && size == compressed,
        });
        directory = texts.get(name + extra + comment..)?;
    }
    Some(entries)
}

/// Replaces the numbers of an entry that are in its extra field.
fn wide_numbers(mut extra: &[u8], numbers: &mut [Option<u64>; 3]) -> Option<()> {
    let mut wide: &[u8] = &[];
    while extra.len() >= 4 {
        let (kind, size) = (u16_at(extra, 0)?, usize::from(u16_at(extra, 2)?));
        let field = extra.get(4..4 + size)?;
        if kind == EXTRA_64 {
            wide = field;
        }
        extra = &extra[4 + size..];
    }
    for number in numbers.iter_mut() {
        if *number == Some(u64::from(IN_EXTRA)) {
            *number = Some(u64_at(wide, 0)?);
            wide = &wide[8..];
        }
    }
    Some(())
}

/// Returns some bytes of the file.
fn read_at<F: Read + Seek>(
    file: &mut F,
    length: u64,
    start: u64,
    size: u64,
    part: &str,
) -> io::Result<Vec<u8>> {
    within(length, start, size, part)?;
    let size = usize::try_from(size).map_err(|_| damaged(part))?;
    let mut bytes = vec![0; size];
    file.seek(SeekFrom::Start(start))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Checks that a part lies in the file.
fn within(length: u64, start: u64, size: u64, part: &str) -> io::Result<()> {
    match start.checked_add(size) {
        Some(end) if end <= length => Ok(()),
        _ => Err(damaged(part)),
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
