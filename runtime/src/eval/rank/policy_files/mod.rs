//! Hashes the files of the policies, and other large inputs (SHA-256), once, in a thread beside the
//! evaluation.
//!
//! ```text
//! rank 0: files of the jobs ─► thread: hashed, or known by path, size and time ─► journal line
//!         large inputs ──────►         the same ─► sums that the next start compares
//! ```
//! Only the end of the rank waits for the thread, and only for a limited time.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

use jobs::inputs::SumCache;
use jobs::job::{Job, Status};
use jobs::journal::{Line, PolicyFiles};
use jobs::plan::RunPlan;
use jobs::sha256::{self, Sum};
use jobs::time::rfc3339;

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

impl PolicyHashing {
    /// Starts to hash the files of the jobs of a plan. `lines` are the lines of the journals;
    /// `cache` is the path of the file with the sums.
    pub fn start(plan: &RunPlan, lines: &[Line], cache: PathBuf) -> Self {
        let wanted = of_policies(&plan.jobs);
        let large = plan.inputs.iter().filter(|(_, file)| file.sha256.is_none());
        let large: Vec<_> = large.map(|(path, _)| PathBuf::from(path)).collect();
        let known = lines.iter().filter_map(|line| match line {
            Line::PolicyFiles(files) => Some(files.clone()),
            _ => None,
        });
        let (found, known, stop) = (channel(), known.collect(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        if !wanted.is_empty() || !large.is_empty() {
            let read = move || {
                let mut sums = SumCache::open(&cache);
                read_all(wanted, &mut sums, &found.0, &stopped);
                for path in large {
                    // A file that is gone has no sum.
                    let _ = sums.file(&path, |path| hash(path, &stopped));
                }
            };
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
    pub fn take(&mut self) -> Vec<Line> {
        let found: Vec<_> = self.found.try_iter().collect();
        found
            .into_iter()
            .filter_map(|files| self.note(files))
            .collect()
    }

    /// Returns the remaining lines. Waits for them up to the time limit.
    pub fn finish(&mut self) -> Vec<Line> {
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

    fn note(&mut self, files: PolicyFiles) -> Option<Line> {
        let mut before = self.known.iter().filter(|known| is_of(known, &files));
        if before
            .next_back()
            .is_some_and(|last| last.sha256 == files.sha256)
        {
            return None;
        }
        self.known.push(files.clone());
        Some(Line::PolicyFiles(files))
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

/// Returns the types of the policies with their files and folders.
fn of_policies(jobs: &[Job]) -> BTreeSet<(String, PathBuf)> {
    let mut found = BTreeSet::new();
    for job in jobs.iter().filter(|job| job.status == Status::Pending) {
        let policy = jobs::policies::canonical_policy(&job.policy_type);
        let files = policy::files(&job.policy_type, &job.policy_config);
        found.extend(files.into_iter().map(|path| (policy.to_owned(), path)));
    }
    found
}

fn read_all(
    wanted: BTreeSet<(String, PathBuf)>,
    sums: &mut SumCache,
    found: &Sender<PolicyFiles>,
    stop: &AtomicBool,
) {
    for (policy_type, path) in wanted {
        let sum = sha256::of_files(&path, |file| sums.file(file, |file| hash(file, stop)));
        match sum {
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
