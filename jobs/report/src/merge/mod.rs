//! Merges several run folders into one, when workers, nodes or nights ran parts of an evaluation
//! separately.
//!
//! ```text
//! folders ─► inputs (run folders in them) ─► plans (one list of jobs) ─► journals (rewritten)
//!                                                                        └─► report of the output
//! ```
//! The output has a plan and journals; datasets and videos stay where they are, and the journals
//! have their paths. The result depends on the set of runs only: merging in any order, at once or
//! step by step, or twice, gives the same result except for the time of writing. The output is
//! never one of its own inputs.
//!
//! A run folder that was copied has the same run id and the same journal lines as the original, so
//! both are one run ([`Merge::copies`]).
//!
//! A journal of a merged folder is named `journal_rank<r>_<run>.jsonl`, with the first characters
//! of the run's id, so that it is recognized when the folder is merged with another.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use jobs::layout::{RunFolder, write_whole};
use jobs::plan::RunPlan;
use jobs::refusal::Refusal;
use serde_json::json;

use crate::{Context, Damage, Journals, Merged, Report};

mod journals;
pub(crate) mod paths;
mod plans;
mod rewrite;

/// The `schema` field of `merge.json`.
const SCHEMA: &str = "rrun/merge/1";

/// Run folders that can be merged.
#[derive(Debug)]
pub struct Merge {
    /// The runs that are merged.
    pub inputs: Vec<Input>,
    /// The output folder.
    pub output: RunFolder,
    /// The merged plan.
    pub plan: RunPlan,
}

impl Merge {
    /// Finds the runs in `dirs` and checks that they are parts of one evaluation. Writes nothing.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn of(dirs: &[PathBuf], output: &Path) -> Result<Self, Refusal> {
        let output = RunFolder::new(&paths::resolved(output).map_err(Refusal::new)?);
        if journals::is_run(&output).map_err(Refusal::new)? {
            return Err(Refusal::new(format_args!(
                "`{}` contains another run: choose another --output",
                output.root().display()
            )));
        }
        let inputs = find(dirs, output.root())?;
        let plan = plans::join(&inputs)?;
        Ok(Self {
            inputs,
            output,
            plan,
        })
    }

    /// Returns the pairs of folders of which the second one is a copy of the first one: their plans
    /// have the same run id. A folder that a merge wrote is no copy of its inputs.
    pub fn copies(&self) -> Vec<[&Path; 2]> {
        let mut originals: HashMap<&str, &Path> = HashMap::new();
        let runs = self
            .inputs
            .iter()
            .filter(|input| !input.plan.id.is_empty() && !input.folder.merge().is_file());
        runs.filter_map(|input| {
            let id = input.plan.id.as_str();
            let original = *originals.entry(id).or_insert(input.folder.root());
            (original != input.folder.root()).then(|| [original, input.folder.root()])
        })
        .collect()
    }

    /// Writes the merged folder and its report, which contains `context`. Returns the report and
    /// the journal lines that were left out.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn write(&self, context: Context) -> io::Result<(Report, Vec<Damage>)> {
        let folder = &self.output;
        std::fs::create_dir_all(folder.root())?;
        let inputs = self
            .inputs
            .iter()
            .map(|input| paths::from_to(folder.root(), input.folder.root()))
            .collect::<Vec<_>>();
        // What the folder was made of. The next merge may overwrite a folder that has this file.
        let made = json!({"schema": SCHEMA, "written": context.created, "inputs": inputs});
        write_whole(&folder.merge(), &serde_json::to_vec_pretty(&made)?)?;
        let fresh = journals::gather(&self.inputs, folder)?;
        write_whole(&folder.plan(), &serde_json::to_vec_pretty(&self.plan)?)?;
        journals::replace(folder, &fresh)?;
        let merged = Merged::new(self.plan.clone(), Journals::of(folder)?)?;
        let report = crate::write(folder, &merged, context)?;
        Ok((report, merged.damage().cloned().collect()))
    }
}

#[cfg(test)]
mod tests;

/// Depth up to which runs are searched below a folder.
const DEPTH: usize = 8;

/// One run to merge.
#[derive(Debug)]
pub struct Input {
    /// The run folder: an absolute path, with symbolic links resolved.
    pub folder: RunFolder,
    /// The plan of the run.
    pub plan: RunPlan,
}

/// Returns the runs in `dirs`, each once, ordered by path, without `output`.
fn find(dirs: &[PathBuf], output: &Path) -> Result<Vec<Input>, Refusal> {
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
    let read = |root: PathBuf| {
        let folder = RunFolder::new(&root);
        let plan = RunPlan::read(&folder)?;
        Ok(Input { folder, plan })
    };
    roots.into_iter().map(read).collect()
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
