//! Hashes the files of the policies (SHA-256) once, in a thread beside the evaluation.
//!
//! ```text
//! rank 0: files of the jobs ─► thread: hashed, or known by path, size and time ─► journal line
//! ```
//! Only the end of the rank waits for the thread, and only for a limited time.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

use jobs::job::{Job, Status};
use jobs::journal::{Line, PolicyFiles};
use jobs::layout::write_whole;
use jobs::sha256::{self, Sum};
use jobs::time::rfc3339;
use serde::{Deserialize, Serialize};

use crate::policy;

/// How long the end of the rank waits for the remaining files, for example one of 30 GB that is not
/// cached.
const PATIENCE: Duration = Duration::from_secs(60);

/// The handle of the hashing thread.
pub struct PolicyHashing {
    found: Receiver<PolicyFiles>,
    /// Lines that are already in the journals.
    known: Vec<PolicyFiles>,
    stop: Arc<AtomicBool>,
}

/// A new journal line, with an optional warning for the user.
pub struct HashedFiles {
    /// The journal line.
    pub line: Line,
    /// Set if the files differ from those that the run has used before.
    pub warning: Option<String>,
}

impl PolicyHashing {
    /// Starts to hash the files that `jobs` name. `lines` are the lines of the journals; `cache` is
    /// the path of the file cache.
    pub fn start(jobs: &[Job], lines: &[Line], cache: PathBuf) -> Self {
        let pending = jobs.iter().filter(|job| job.status == Status::Pending);
        let wanted: BTreeSet<(String, PathBuf)> = pending
            .flat_map(|job| {
                policy::files(&job.policy_type, &job.policy_config)
                    .into_iter()
                    .map(move |path| (job, path))
            })
            .map(|(job, path)| {
                (
                    jobs::policies::canonical_policy(&job.policy_type).to_owned(),
                    path,
                )
            })
            .collect();
        let known = lines.iter().filter_map(|line| match line {
            Line::PolicyFiles(files) => Some(files.clone()),
            _ => None,
        });
        let (found, known, stop) = (channel(), known.collect(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        if !wanted.is_empty() {
            let read = move || read_all(wanted, &cache, &found.0, &stopped);
            // Without a thread these lines are missing; an evaluation does not need them.
            let thread = std::thread::Builder::new()
                .name("policy files".to_owned())
                .spawn(read);
            thread
                .inspect_err(|err| tracing::warn!(%err, "no thread reads the files of policies"))
                .ok();
        }
        Self {
            found: found.1,
            known,
            stop,
        }
    }

    /// Returns the lines that are new since the last call.
    pub fn take(&mut self) -> Vec<HashedFiles> {
        let found: Vec<_> = self.found.try_iter().collect();
        found
            .into_iter()
            .filter_map(|files| self.note(files))
            .collect()
    }

    /// Returns the remaining lines. Waits for them up to the time limit.
    pub fn finish(&mut self) -> Vec<HashedFiles> {
        #[expect(clippy::disallowed_methods, reason = "a deadline of reading files")]
        let end = std::time::Instant::now() + PATIENCE;
        let mut found = Vec::new();
        #[expect(clippy::disallowed_methods, reason = "a deadline of reading files")]
        while let Ok(files) = self
            .found
            .recv_timeout(end.saturating_duration_since(std::time::Instant::now()))
        {
            found.extend(self.note(files));
        }
        found
    }

    fn note(&mut self, files: PolicyFiles) -> Option<HashedFiles> {
        let mut before = self.known.iter().filter(|known| is_of(known, &files));
        let warning = match before.next_back() {
            Some(last) if last.sha256 == files.sha256 => return None,
            Some(last) => Some(format!(
                "warning: policy `{}` has different files than before (SHA-256 {:.12}…, it was \
                 {:.12}…)",
                files.path, files.sha256, last.sha256
            )),
            None => None,
        };
        self.known.push(files.clone());
        Some(HashedFiles {
            line: Line::PolicyFiles(files),
            warning,
        })
    }
}

impl Drop for PolicyHashing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn is_of(known: &PolicyFiles, files: &PolicyFiles) -> bool {
    (&known.policy_type, &known.path) == (&files.policy_type, &files.path)
}

fn read_all(
    wanted: BTreeSet<(String, PathBuf)>,
    cache: &Path,
    found: &Sender<PolicyFiles>,
    stop: &AtomicBool,
) {
    let mut cache = HashCache::open(cache);
    for (policy_type, path) in wanted {
        match sha256::of_files(&path, |file| cache.file(file, stop)) {
            Ok(Sum { sha256, bytes }) => {
                let (path, at) = (path.display().to_string(), rfc3339(SystemTime::now()));
                // The receiver is gone after the rank has ended.
                if found
                    .send(PolicyFiles {
                        policy_type,
                        path,
                        sha256,
                        bytes,
                        at,
                    })
                    .is_err()
                {
                    return;
                }
            }
            Err(_) if stop.load(Ordering::Relaxed) => return,
            Err(err) => {
                tracing::warn!(%err, path = %path.display(), "cannot read the files of a policy")
            }
        }
    }
}

/// The hashes of known files, valid as long as size and modification time stay the same.
struct HashCache {
    path: PathBuf,
    entries: BTreeMap<String, HashedFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HashedFile {
    bytes: u64,
    /// Modification time in nanoseconds since 1970.
    modified: i128,
    sha256: String,
}

impl HashCache {
    /// Opens a cache; a missing or unreadable file gives an empty one.
    fn open(path: &Path) -> Self {
        let entries = fs::read(path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        Self {
            path: path.to_owned(),
            entries,
        }
    }

    fn file(&mut self, path: &Path, stop: &AtomicBool) -> io::Result<Sum> {
        let found = fs::metadata(path)?;
        let modified = i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec());
        let name = path.canonicalize()?.display().to_string();
        let is_same =
            |entry: &&HashedFile| (entry.bytes, entry.modified) == (found.len(), modified);
        if let Some(entry) = self.entries.get(&name).filter(is_same) {
            return Ok(Sum {
                sha256: entry.sha256.clone(),
                bytes: entry.bytes,
            });
        }
        let sum = hash(path, stop)?;
        let entry = HashedFile {
            bytes: sum.bytes,
            modified,
            sha256: sum.sha256.clone(),
        };
        self.entries.insert(name, entry);
        // An error is ignored: the cache only saves reading the files again.
        if let Err(err) = serde_json::to_vec(&self.entries)
            .map_err(io::Error::from)
            .and_then(|text| write_whole(&self.path, &text))
        {
            tracing::debug!(%err, "cannot remember the files of policies");
        }
        Ok(sum)
    }
}

fn hash(path: &Path, stop: &AtomicBool) -> io::Result<Sum> {
    sha256::of_reader(Stoppable {
        file: File::open(path)?,
        stop,
    })
}

/// A file whose reads fail after `stop` is set.
struct Stoppable<'a> {
    file: File,
    stop: &'a AtomicBool,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(io::Error::other("nobody waits for it any more")),
            false => self.file.read(block),
        }
    }
}
