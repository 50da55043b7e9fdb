//! What rank 0 has read in all journals, in one file for the other ranks.
//!
//! When a round of a large launch begins, every rank needs to know what is done. If each of them
//! opened the journals of all, a thousand ranks would open a million files. So rank 0 alone reads
//! them, and writes what a rank keeps of them into one file beside them, a line for each journal;
//! its name and size are in the store.
//!
//! ```text
//! journal_rank0.jsonl … ─► rank 0 ─► extract_<id>.jsonl ─► ranks 1, 2, …, each with its own journal
//!                            └─────► store: `history` = `<id> <bytes>`, or nothing if it failed
//! ```
//! A rank that does not see the file, because its node has a disk of its own, reads the journals that
//! it sees. The file is removed when rank 0 ends, or by the next rank 0.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use jobs::{files, launch};

use crate::eval::rank::history::JournalPart;

/// The file of an extract, which is removed when this is dropped.
#[derive(Debug)]
pub struct Extract {
    path: PathBuf,
    id: String,
    file: BufWriter<File>,
}

impl Extract {
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
        Ok(Self { path, id, file })
    }

    /// Adds what was read in a journal.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn add(&mut self, journal: &str, part: &JournalPart) -> io::Result<()> {
        serde_json::to_writer(&mut self.file, &(journal, part))?;
        self.file.write_all(b"\n")
    }

    /// Completes the file; returns what the other ranks have to be told, see [`read`].
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn finish(&mut self) -> io::Result<String> {
        self.file.flush()?;
        let bytes = self.file.get_ref().metadata()?.len();
        Ok(format!("{} {bytes}", self.id))
    }
}

impl Drop for Extract {
    fn drop(&mut self) {
        // Without it, it stays until the next extract is written.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads the extract of which rank 0 has told `said`, without the journal named `own`: this rank
/// reads it itself.
///
/// # Errors
/// Returns an error if there is none, or if it cannot be read, is not as long as rank 0 has said, or
/// is damaged.
pub fn read(folder: &Path, said: &str, own: &str) -> io::Result<Vec<JournalPart>> {
    let is_id = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (id, bytes) = said
        .split_once(' ')
        .filter(|(id, _)| is_id(id))
        .ok_or_else(|| damaged("its name"))?;
    let file = files::open(&path(folder, id))?;
    if bytes.parse() != Ok(file.metadata()?.len()) {
        return Err(damaged("its length"));
    }
    let mut parts = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        let (journal, mut part): (String, JournalPart) = serde_json::from_slice(&line?)?;
        for (job, line) in &mut part.lines {
            if let Some(job) = job {
                line.set_job_index(*job);
            }
        }
        if journal != own {
            parts.push(part);
        }
    }
    Ok(parts)
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
