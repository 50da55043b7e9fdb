//! The sums of the files that the policies of a run are made of: valid as long as size and time
//! stay the same. Rank 0 computes them beside the evaluation.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::files::{self, MAX_DOCUMENT_BYTES};
use crate::inputs::InputFile;
use crate::layout::write_whole;
use crate::sha256::Sum;

/// Returns the modification time of a file in nanoseconds since 1970.
pub fn modified(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// The sums of known files.
#[derive(Clone, Debug, Default)]
pub struct SumCache {
    path: PathBuf,
    entries: BTreeMap<String, InputFile>,
}

impl SumCache {
    /// Opens a cache; a missing or unreadable file gives an empty one.
    pub fn open(path: &Path) -> Self {
        let entries = files::read(path, MAX_DOCUMENT_BYTES)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        Self {
            path: path.to_owned(),
            entries,
        }
    }

    /// Returns the sum of a file as it was when it had this size and time.
    pub fn sum(&self, path: &Path, file: &InputFile) -> Option<&str> {
        let entry = self.entries.get(&name(path).ok()?)?;
        let is_same = (entry.bytes, entry.modified) == (file.bytes, file.modified);
        entry.sha256.as_deref().filter(|_| is_same)
    }

    /// Returns the sum of a file. If it is not known, `hash` computes it, and it is remembered.
    ///
    /// # Errors
    /// Returns the errors of the file system and of `hash`.
    pub fn file(
        &mut self,
        path: &Path,
        hash: impl FnOnce(&Path) -> io::Result<Sum>,
    ) -> io::Result<Sum> {
        let found = fs::metadata(path)?;
        let mut entry = InputFile {
            bytes: found.len(),
            modified: modified(&found),
            sha256: None,
        };
        if let Some(sum) = self.sum(path, &entry) {
            return Ok(Sum {
                sha256: sum.to_owned(),
                bytes: entry.bytes,
            });
        }
        let sum = hash(path)?;
        entry.bytes = sum.bytes;
        entry.sha256 = Some(sum.sha256.clone());
        self.entries.insert(name(path)?, entry);
        // Without the file, what has been read is read again at the next start.
        let text = serde_json::to_vec(&self.entries).map_err(io::Error::from);
        let _ = text.and_then(|text| write_whole(&self.path, &text));
        Ok(sum)
    }
}

fn name(path: &Path) -> io::Result<String> {
    Ok(path.canonicalize()?.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sha256;

    #[test]
    fn what_was_read_before_is_read_again_only_when_it_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (blob, path) = (dir.path().join("blob"), dir.path().join("cache"));
        fs::write(&blob, "first").unwrap();
        let hash = |path: &Path| sha256::of_reader(fs::File::open(path)?);
        let sum = || SumCache::open(&path).file(&blob, hash).unwrap();
        let first = sum();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(&first.sha256, "remembered")).unwrap();
        assert_eq!(sum().sha256, "remembered");
        fs::write(&blob, "another").unwrap();
        assert_ne!(sum().sha256, "remembered");
        fs::write(&path, "no cache").unwrap();
        assert_eq!(sum().bytes, 7);
    }
}
