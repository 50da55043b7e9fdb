//! Reads zip files whose entries are stored without compression, as torch writes packages.
//!
//! ```text
//! entries … │ central directory │ [zip64 end, locator] │ end of central directory, comment
//! ```
//! APPNOTE.TXT 6.3.10 of PKWARE, sections 4.3 and 4.4. No number of the file is trusted: sizes and
//! offsets have to lie in the file, and what is read into memory has a limit, so that a file from a
//! stranger costs no more memory than [`MOST_DIRECTORY`].

use std::io::{self, Read, Seek, SeekFrom, Write};

/// Largest central directory in bytes. Torch writes about 150 bytes for each file.
const MOST_DIRECTORY: u64 = 16 << 20;

/// Size in bytes of the record at the end, without its comment.
const END: usize = 22;

/// Size in bytes of the record that says where the end with numbers of 64 bits is.
const LOCATOR: usize = 20;

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
const LOCAL_HEADER: u64 = 30;

/// Kind of the extra field that has numbers of 64 bits.
const EXTRA_64: u64 = 1;

/// Stands for a number that is in the extra field.
const IN_EXTRA: u64 = u32::MAX as u64;

/// The method of entries that are not compressed.
const STORED: u64 = 0;

/// The flag of entries that are encrypted.
const ENCRYPTED: u64 = 1;

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
    entries: Vec<Entry>,
}

impl<F: Read + Seek> Archive<F> {
    /// Reads the central directory of a zip file.
    ///
    /// # Errors
    /// Returns [`InvalidData`](io::ErrorKind::InvalidData) for a file that is something else, or is
    /// damaged.
    pub fn open(mut file: F) -> io::Result<Self> {
        let (start, size) = directory(&mut file)?;
        if size > MOST_DIRECTORY {
            return Err(invalid(format!(
                "its central directory has {size} bytes, expected at most {MOST_DIRECTORY}"
            )));
        }
        let bytes = read_at(&mut file, start, size, "central directory")?;
        let entries = entries(&bytes).ok_or_else(|| damaged("central directory"))?;
        Ok(Self { file, entries })
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
        let (Entry { name, size, .. }, mut bytes) = (entry, Vec::new());
        if *size > most {
            let reason = format!("`{name}` has {size} bytes, expected at most {most}");
            return Err(invalid(reason));
        }
        self.copy(entry, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies the bytes of an entry.
    ///
    /// # Errors
    /// Returns an error for an entry that is not in the file, and the errors of both files.
    pub fn copy(&mut self, entry: &Entry, to: &mut impl Write) -> io::Result<()> {
        entry.check()?;
        let header = read_at(&mut self.file, entry.header, LOCAL_HEADER, "entry")?;
        // Name and extra field, which may be others than in the central directory.
        let lengths = number(&header, 26, 2).zip(number(&header, 28, 2));
        let (true, Some((name, extra))) = (header.starts_with(LOCAL_SIGNATURE), lengths) else {
            return Err(damaged("entry"));
        };
        let skipped = (name + extra).cast_signed();
        self.file.seek(SeekFrom::Current(skipped))?;
        match io::copy(&mut (&mut self.file).take(entry.size), to)? == entry.size {
            true => Ok(()),
            false => Err(damaged("entry")),
        }
    }
}

/// Returns where the central directory begins, and its size.
fn directory<F: Read + Seek>(file: &mut F) -> io::Result<(u64, u64)> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail = length.min((LOCATOR + END + MOST_COMMENT) as u64);
    let bytes = read_at(file, length - tail, tail, "end")?;
    let at = (0..bytes.len().saturating_sub(END - 1))
        .rev()
        .find(|&at| is_end(&bytes[at..]))
        .ok_or_else(|| invalid("it does not end as a zip file does"))?;
    let locator = at.checked_sub(LOCATOR).map(|at| &bytes[at..]);
    let found = match locator.filter(|locator| locator.starts_with(LOCATOR_SIGNATURE)) {
        None => number(&bytes[at..], 16, 4).zip(number(&bytes[at..], 12, 4)),
        Some(locator) => {
            let place = number(locator, 8, 8).unwrap_or(u64::MAX);
            let end = read_at(file, place, 56, "end")?;
            let found = number(&end, 48, 8).zip(number(&end, 40, 8));
            found.filter(|_| end.starts_with(END_64_SIGNATURE))
        }
    };
    found.ok_or_else(|| damaged("end"))
}

/// Returns whether the record at the end begins here: its comment then reaches to the end.
fn is_end(bytes: &[u8]) -> bool {
    bytes.starts_with(END_SIGNATURE) && number(bytes, 20, 2) == Some((bytes.len() - END) as u64)
}

/// Returns the entries of a central directory; `None` if it is damaged.
fn entries(mut directory: &[u8]) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while !directory.is_empty() {
        if !directory.starts_with(DIRECTORY_SIGNATURE) {
            return None;
        }
        let [name, extra, comment] = [28, 30, 32].map(|at| number(directory, at, 2));
        let (name, extra, comment) = (name? as usize, extra? as usize, comment? as usize);
        let texts = directory.get(DIRECTORY_ENTRY..)?;
        let mut wide = wide_numbers(texts.get(name..name + extra)?)?;
        let mut wide_or = |at| match number(directory, at, 4)? {
            IN_EXTRA => {
                let found = number(wide, 0, 8)?;
                wide = &wide[8..];
                Some(found)
            }
            number => Some(number),
        };
        let (size, compressed, header) = (wide_or(24)?, wide_or(20)?, wide_or(42)?);
        let (flags, method) = (number(directory, 8, 2)?, number(directory, 10, 2)?);
        entries.push(Entry {
            name: String::from_utf8(texts.get(..name)?.to_vec()).ok()?,
            size,
            header,
            is_stored: method == STORED && flags & ENCRYPTED == 0 && size == compressed,
        });
        directory = texts.get(name + extra + comment..)?;
    }
    Some(entries)
}

/// Returns the numbers of 64 bits of an entry's extra field, if there are any.
fn wide_numbers(mut extra: &[u8]) -> Option<&[u8]> {
    while extra.len() >= 4 {
        let (kind, size) = (number(extra, 0, 2)?, number(extra, 2, 2)? as usize);
        let field = extra.get(4..4 + size)?;
        if kind == EXTRA_64 {
            return Some(field);
        }
        extra = &extra[4 + size..];
    }
    Some(&[])
}

/// Returns some bytes of the file, as many as there are limits for.
fn read_at<F: Read + Seek>(file: &mut F, start: u64, size: u64, part: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reached = file.seek(SeekFrom::Start(start));
    reached.map_err(|_| damaged(part))?;
    file.take(size).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == size {
        true => Ok(bytes),
        false => Err(damaged(part)),
    }
}

/// Returns a number of `width` bytes, little endian.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + width)?.iter().rev();
    Some(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
