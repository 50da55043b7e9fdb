//! Finds the run folders in the folders to merge.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;

/// Depth up to which runs are searched below a folder.
const DEPTH: usize = 8;

/// One run to merge.
#[derive(Debug)]
pub struct Input {
    folder: RunFolder,
    plan: RunPlan,
}

impl Input {
    /// Returns the run folder.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Returns the absolute path of the folder, with symbolic links resolved.
    pub(super) fn root(&self) -> &Path {
        self.folder.root()
    }

    /// Returns the plan of the run.
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Reads the run in a folder with a plan.
    fn read(root: &Path) -> Result<Self, Refusal> {
        let folder = RunFolder::new(root);
        let plan = RunPlan::read(&folder)?;
        Ok(Self { folder, plan })
    }
}

/// Returns the runs in `dirs`, each once, ordered by path, without `output`.
pub(super) fn find(dirs: &[PathBuf], output: &Path) -> Result<Vec<Input>, Refusal> {
    let mut roots = BTreeSet::new();
    for dir in dirs {
        let missing =
            |err| Refusal::at(format_args!("cannot read folder `{}`", dir.display()), err);
        let root = dir.canonicalize().map_err(missing)?;
        let mut found = BTreeSet::new();
        look(&root, DEPTH, &mut found).map_err(missing)?;
        if found.is_empty() {
            return Err(Refusal::new(format_args!(
                "`{}` is not a run folder and contains none: there is no plan.json",
                dir.display()
            )));
        }
        roots.extend(found);
    }
    roots.remove(output);
    if roots.is_empty() {
        return Err(Refusal::new(format_args!(
            "nothing to merge: `{}` is the output of this merge, which is not read",
            output.display()
        )));
    }
    roots.iter().map(|root| Input::read(root)).collect()
}

/// Collects a run folder, or the run folders in it; symbolic links are not followed. A merged
/// folder may be among the runs that it was made of, or above them, so it is searched, too.
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
