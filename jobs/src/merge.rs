//! One run folder of several: what workers, nodes or nights did apart, as one run.
//!
//! ```text
//! folders ─► inputs (run folders in them) ─► plans (one job list, or refused) ─► journals (lines of each, rewritten)
//!                                                                                  └─► report, as of any run folder
//! ```
//! The output holds plan and journals; datasets and videos stay where they are, and the journals say where that is. What
//! comes out is a function of the set of runs: merged in any order, in one go or step by step, or twice, it is the same
//! but for the time of writing. It is never its own input.
//!
//! A journal of a merged folder is `journal_rank<r>_<run>.jsonl`, with the first letters of the run's name: so it is known
//! again when the folder is merged with another.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::layout::{RunFolder, write_whole};
use crate::plan::{RunFolderError, RunPlan};
use crate::report::{self, Context, Damage, Journals, Merged, Report};

mod inputs;
mod journals;
mod paths;
mod plans;
mod rewrite;

pub use inputs::Input;

/// Schema of `merge.json`.
const SCHEMA: &str = "rrun/merge/1";

/// Why folders are not merged. Nothing has been written then, but for [`MergeError::Io`].
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A folder is not there.
    #[error("cannot look into `{}`: {err}", dir.display())]
    Missing {
        /// Which.
        dir: PathBuf,
        /// Why.
        #[source]
        err: io::Error,
    },
    /// A folder has no runs.
    #[error("`{}` is no run folder and has none in it: there is no plan.json", dir.display())]
    NoRuns {
        /// Which.
        dir: PathBuf,
    },
    /// Only the output itself was named.
    #[error("nothing is left to merge: `{}` is the output of this merge, which is not read", output.display())]
    OnlyOutput {
        /// The output.
        output: PathBuf,
    },
    /// The output is a run of its own.
    #[error("`{}` holds a run of its own: name another --output", output.display())]
    OutputIsRun {
        /// The output.
        output: PathBuf,
    },
    /// A run folder that cannot be used.
    #[error(transparent)]
    Folder(#[from] RunFolderError),
    /// Two runs have jobs of one name that are not the same.
    #[error("`{}` and `{}` ran different jobs under the same names:\n  {}", a.display(), b.display(), lines.join("\n  "))]
    Jobs {
        /// One run.
        a: PathBuf,
        /// The other.
        b: PathBuf,
        /// What differs.
        lines: Vec<String>,
    },
    /// Jobs without a seed of their own have different ones.
    #[error("the base seed of `{}` is {a_seed}, that of `{}` is {b_seed}: jobs need a seed of their own to be merged", a.display(), b.display())]
    Seeds {
        /// One run.
        a: PathBuf,
        /// Its seed.
        a_seed: u64,
        /// The other.
        b: PathBuf,
        /// Its seed.
        b_seed: u64,
    },
    /// The file system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Run folders that can be merged.
#[derive(Debug)]
pub struct Merge {
    inputs: Vec<Input>,
    output: RunFolder,
    plan: RunPlan,
}

/// `merge.json`: what a merged folder was made of. Where it is, a folder may be written over by the next merge.
#[derive(Debug, Serialize)]
struct Made<'a> {
    schema: &'a str,
    written: &'a str,
    inputs: Vec<String>,
}

impl Merge {
    /// Finds the runs in `dirs` and checks that they are parts of one. Writes nothing.
    ///
    /// # Errors
    /// [`MergeError`] for the first thing that is in the way.
    pub fn of(dirs: &[PathBuf], output: &Path) -> Result<Self, MergeError> {
        let output = RunFolder::new(&paths::resolved(output)?);
        if journals::is_run(&output)? {
            return Err(MergeError::OutputIsRun { output: output.root().to_owned() });
        }
        let mut inputs = inputs::find(dirs, output.root())?;
        let plan = plans::join(&mut inputs)?;
        Ok(Self { inputs, output, plan })
    }

    /// The runs that are merged.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The plan of all of them.
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// The output.
    pub fn output(&self) -> &RunFolder {
        &self.output
    }

    /// Writes the merged folder, and its report; `context` is for the report. Gives that, and the lines of the journals
    /// that are left out.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, context: Context) -> io::Result<(Report, Vec<Damage>)> {
        let folder = &self.output;
        std::fs::create_dir_all(folder.root())?;
        let inputs = self.inputs.iter().map(|input| paths::from_to(folder.root(), input.root())).collect();
        let made = Made { schema: SCHEMA, written: &context.created, inputs };
        write_whole(&folder.merge(), &serde_json::to_vec_pretty(&made)?)?;
        let fresh = journals::gather(&self.inputs, folder)?;
        write_whole(&folder.plan(), &serde_json::to_vec_pretty(&self.plan)?)?;
        fresh.replace(folder)?;
        let journals = Journals::of(folder)?;
        let merged = Merged::new(&self.plan, &journals)?;
        let report = Report::of(&merged, context)?;
        report::write_merged(folder, &merged, &report)?;
        Ok((report, merged.damage().cloned().collect()))
    }
}

#[cfg(test)]
mod tests;
