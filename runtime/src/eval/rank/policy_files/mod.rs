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
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

use jobs::inputs::SumCache;
use jobs::job::{Job, Status};
use jobs::journal::{Line, PolicyFiles};
use jobs::plan::RunPlan;
use jobs::sha256::{self, Sum};
use jobs::time::rfc3339;

use crate::clock::now;
use crate::policy;

/// How long the end of the rank waits for the remaining files, for example one of 30 GB that is not
/// cached.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of the hashing thread, which ends with the process of the rank.
pub struct PolicyHashing(Receiver<Line>);

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
        let known: Vec<_> = known.collect();
        let (found, receiver) = channel();
        if wanted.is_empty() && large.is_empty() {
            return Self(receiver);
        }
        let read = move || {
            let mut sums = SumCache::open(&cache);
            read_all(wanted, &mut sums, &known, &found);
            for path in large {
                // A file that is gone has no sum.
                let _ = sums.file(&path, hash);
            }
        };
        let thread = std::thread::Builder::new().name("policy files".to_owned());
        if let Err(err) = thread.spawn(read) {
            // These lines are missing then; an evaluation does not need them.
            tracing::warn!(%err, "no thread reads the files of policies");
        }
        Self(receiver)
    }

    /// Returns the lines that are new since the last call. Waits for the remaining ones for at most
    /// `patience`.
    pub fn take(&self, patience: Duration) -> Vec<Line> {
        let end = now() + patience;
        let left = || end.saturating_duration_since(now());
        std::iter::from_fn(|| self.0.recv_timeout(left()).ok()).collect()
    }
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

/// Sends a line for all files that have changed since the last line about them.
fn read_all(
    wanted: BTreeSet<(String, PathBuf)>,
    sums: &mut SumCache,
    known: &[PolicyFiles],
    found: &Sender<Line>,
) {
    for (policy_type, path) in wanted {
        let Sum { sha256, bytes } = match sha256::of_files(&path, |file| sums.file(file, hash)) {
            Ok(sum) => sum,
            Err(err) => {
                tracing::warn!(%err, path = %path.display(), "cannot read the files of a policy");
                continue;
            }
        };
        let files = PolicyFiles {
            policy_type,
            path: path.display().to_string(),
            sha256,
            bytes,
            at: rfc3339(SystemTime::now()),
        };
        let is_same = |known: &&PolicyFiles| {
            (&known.policy_type, &known.path) == (&files.policy_type, &files.path)
        };
        let last = known.iter().rfind(is_same);
        if last.is_none_or(|last| last.sha256 != files.sha256)
            && found.send(Line::PolicyFiles(files)).is_err()
        {
            // The rank has ended.
            return;
        }
    }
}

fn hash(path: &Path) -> io::Result<Sum> {
    sha256::of_reader(File::open(path)?)
}
