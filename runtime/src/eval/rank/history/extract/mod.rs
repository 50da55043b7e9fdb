//! What rank 0 has read in all journals, in one file for the other ranks.
//!
//! When a round of a large launch begins, every rank needs to know what is done. If each of them
//! opened the journals of all, a thousand ranks would open a million files. So rank 0 alone reads
//! them, and writes what a rank keeps of them into one file beside them; its name and size are in
//! the store.
//!
//! ```text
//! journal_rank0.jsonl … ─► rank 0 ─► extract_<id>.jsonl ─► ranks 1, 2, …, each with its own journal
//!                            └─────► store: `history` = `<id> <bytes>`, or nothing if it failed
//! ```
//! A rank that does not see the file, because its node has a disk of its own, reads the journals that
//! it sees. The file is removed when rank 0 ends, or by the next rank 0.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use jobs::job::JobIndex;
use jobs::journal::{self, Line};
use jobs::suspects::{Suspect, Suspects};
use jobs::{files, launch};
use serde::{Deserialize, Serialize};

use crate::eval::rank::history::part::JournalPart;

/// The line before the lines of a journal.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    /// Name of the file of the journal.
    journal: String,
    /// When its rank began in this launch.
    began: Option<String>,
    /// Episodes that may have killed its rank.
    suspects: Vec<Suspect>,
    /// Number of the lines that follow.
    lines: usize,
}

/// An extract that is being written.
pub struct ExtractWriter {
    extract: Extract,
    id: String,
    file: BufWriter<File>,
    /// The first error.
    failed: Option<io::Error>,
}

/// The file of an extract, which is removed when this is dropped.
#[derive(Debug)]
pub struct Extract(PathBuf);

impl Drop for Extract {
    fn drop(&mut self) {
        // Without it, it stays until the next extract is written.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl ExtractWriter {
    /// Creates an extract in the folder of the journals, and removes earlier ones.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn create(folder: &Path) -> io::Result<Self> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("extract_") && name.ends_with(".jsonl") {
                std::fs::remove_file(&path)?;
            }
        }
        let id = launch::fresh_id()?;
        let path = path(folder, &id);
        let file = BufWriter::new(File::create_new(&path)?);
        Ok(Self {
            extract: Extract(path),
            id,
            file,
            failed: None,
        })
    }

    /// Adds what was read in a journal; [`ExtractWriter::finish`] returns the error if that fails.
    pub fn add(&mut self, journal: &str, part: &JournalPart) {
        if self.failed.is_none() {
            self.failed = self.try_add(journal, part).err();
        }
    }

    fn try_add(&mut self, journal: &str, part: &JournalPart) -> io::Result<()> {
        let lines: Vec<_> = part
            .lines
            .iter()
            .filter(|line| is_for_others(line))
            .collect();
        let header = Header {
            journal: journal.to_owned(),
            began: part.began.clone(),
            suspects: part.suspects.list(),
            lines: lines.len(),
        };
        self.line(&header)?;
        // The other ranks have the same plan, and names are not kept.
        let mut lines = lines.into_iter();
        lines.try_for_each(|line| self.line(&(line.job().map(|(_, index)| index), line)))
    }

    fn line(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, value)?;
        self.file.write_all(b"\n")
    }

    /// Completes the file; returns it with what the other ranks have to be told, see
    /// [`read`].
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn finish(mut self) -> io::Result<(Extract, String)> {
        self.failed.take().map_or(Ok(()), Err)?;
        self.file.flush()?;
        let bytes = self.file.get_ref().metadata()?.len();
        Ok((self.extract, format!("{} {bytes}", self.id)))
    }
}

/// Reads the extract of which rank 0 has told `said`, without the journal named `own`.
///
/// # Errors
/// Returns an error if there is none, or if it cannot be read, is not as long as rank 0 has said, or
/// is damaged; parts may have been given to `on` then.
pub fn read(
    folder: &Path,
    said: &str,
    own: &str,
    mut on: impl FnMut(JournalPart),
) -> io::Result<()> {
    let (id, bytes) = said.split_once(' ').ok_or_else(|| damaged("its name"))?;
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bytes: u64 = bytes.parse().map_err(|_| damaged("its size"))?;
    if !is_id {
        return Err(damaged("its name"));
    }
    let file = files::open(&path(folder, id))?;
    if file.metadata()?.len() != bytes {
        return Err(damaged("its length"));
    }
    let mut lines = Lines {
        file: BufReader::new(file),
        text: Vec::new(),
    };
    while let Some(header) = lines.next()? {
        let header: Header = serde_json::from_slice(header)?;
        let mut part = JournalPart {
            suspects: Suspects::from_list(&header.suspects),
            began: header.began,
            lines: Vec::new(),
        };
        // This rank reads its own journal itself, and would count it twice.
        let is_own = header.journal == own;
        for _ in 0..header.lines {
            let text = lines.next()?.ok_or_else(|| damaged("its end"))?;
            if !is_own {
                let (job, mut line): (JobIndex, Line) = serde_json::from_slice(text)?;
                line.set_job_index(job);
                part.lines.push(line);
            }
        }
        if !is_own {
            on(part);
        }
    }
    Ok(())
}

/// The lines of an extract.
struct Lines {
    file: BufReader<File>,
    text: Vec<u8>,
}

impl Lines {
    /// Returns the next line; `None` at the end.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        journal::read_line(&mut self.file, &mut self.text)?;
        Ok((!self.text.is_empty()).then_some(&self.text))
    }
}

/// Returns whether a line of another rank decides what is left to do.
fn is_for_others(line: &Line) -> bool {
    matches!(line, Line::Episode(_) | Line::JobStart(_) | Line::JobEnd(_))
}

fn path(folder: &Path, id: &str) -> PathBuf {
    folder.join(format!("extract_{id}.jsonl"))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("{what} is not what rank 0 wrote"),
    )
}

#[cfg(test)]
mod tests;
