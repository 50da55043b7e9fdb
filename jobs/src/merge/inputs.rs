//! The run folders in the folders that were named.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::{MergeError, paths};
use crate::job::JobIndex;
use crate::layout::RunFolder;
use crate::plan::RunPlan;

/// Folders below the one that was named in which runs are looked for.
const DEPTH: usize = 8;

/// One run.
#[derive(Debug)]
pub struct Input {
    folder: RunFolder,
    plan: RunPlan,
    /// Where its jobs are in the merged plan; empty where they are.
    pub(super) positions: HashMap<JobIndex, JobIndex>,
}

impl Input {
    /// Its folder.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Absolute, links followed.
    pub(super) fn root(&self) -> &Path {
        self.folder.root()
    }

    /// What it was asked to do.
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Of a folder with a plan.
    fn read(root: &Path) -> Result<Self, MergeError> {
        let folder = RunFolder::new(root);
        let plan = RunPlan::read(&folder)?;
        Ok(Self { folder, plan, positions: HashMap::new() })
    }
}

/// The runs in `dirs`, each once, by path; not `output`.
pub(super) fn find(dirs: &[PathBuf], output: &Path) -> Result<Vec<Input>, MergeError> {
    let mut roots = BTreeSet::new();
    for dir in dirs {
        let missing = |err| MergeError::Missing { dir: dir.clone(), err };
        let root = dir.canonicalize().map_err(missing)?;
        let mut found = BTreeSet::new();
        look(&root, DEPTH, &mut found).map_err(missing)?;
        if found.is_empty() {
            return Err(MergeError::NoRuns { dir: dir.clone() });
        }
        roots.extend(found);
    }
    roots.remove(&paths::resolved(output)?);
    if roots.is_empty() {
        return Err(MergeError::OnlyOutput { output: output.to_owned() });
    }
    roots.iter().map(|root| Input::read(root)).collect()
}

/// A run folder, or else those in it; links are not followed. A merged folder may stand among the runs that it was made
/// of, or above them, so what is in it is looked at, too.
fn look(dir: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) -> std::io::Result<()> {
    let folder = RunFolder::new(dir);
    let is_run = folder.plan().exists();
    if is_run {
        found.insert(dir.to_owned());
    }
    if depth == 0 || (is_run && !folder.merge().is_file()) {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !entry.file_name().as_encoded_bytes().starts_with(b".") {
            look(&entry.path(), depth - 1, found)?;
        }
    }
    Ok(())
}
