//! Reads an Experiment of Isaac Lab-Arena, the YAML of its `experiment_runner`, as the jobs file
//! that it means.
//!
//! ```text
//! file ─► tree ─► shared.<path>=<value> ─► shared under each run ─► runs.<name>.<path>=<value>
//!                                              └─► references ─► one job per run ─► jobs file
//! ```
//! The correspondence of fields is that of Arena's converter from jobs files to Experiments
//! (isaaclab_arena/evaluation/legacy_eval_config.py of 0bfff155); the rules of `shared`, of
//! references and of the command line are those of isaaclab_arena/hydra/typed_experiment_loader.py
//! of 0fc852b8. Older forms are read, too: `runs` as a list whose entries have a `name`, and the
//! names `experiments` and `rollout`.

use std::path::Path;

use serde_json::{Value, json};

use crate::installed;
use crate::refusal::Refusal;
use crate::tree;

mod change;
mod environment;
mod run;
mod runs;
mod value;

pub use change::Change;

/// An Experiment that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Its runs in the form of a jobs file, in the order of the file.
    pub jobs: Value,
    /// Dotted names of the settings without effect, each once, without the name of its run.
    pub unused: Vec<String>,
}

/// Returns whether a jobs file is an Experiment, which its ending says, as in Arena.
pub fn is_experiment(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["yaml", "yml"].contains(&ending.to_lowercase().as_str()))
}

impl Experiment {
    /// Reads a file and applies the changes of the command line. `variable` looks up
    /// `${oc.env:NAME}`.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn read(
        path: &Path,
        changes: &[Change],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        Self::parse(path, &tree::read(path)?, changes, variable)
    }

    /// Does the same for a text that was already read.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn parse(
        path: &Path,
        text: &str,
        changes: &[Change],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let tree = tree::parse(path, text)?;
        Self::of_tree(tree, changes, variable)
            .map_err(|refusal| Refusal::at(tree::quoted(path), refusal))
    }

    fn of_tree(
        tree: Value,
        changes: &[Change],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let mut parts = runs::split(&tree)?;
        for change in changes.iter().filter(|change| change.is_shared()) {
            change.apply(&mut parts.shared);
        }
        let mut unused = runs::unread(&parts)?;
        let mut runs = runs::with_shared(&parts)?;
        for change in changes.iter().filter(|change| !change.is_shared()) {
            runs::change(&mut runs, change)?;
        }
        let shared = json!({ "shared": parts.shared });
        let resolver = tree::Resolver::new(&shared, variable, true);
        let mut jobs = Vec::new();
        for (name, run) in &runs {
            let run = resolver.resolve(run);
            runs::refuse_unresolved(name, &run)?;
            let fields = runs::object(&format!("runs.{name}"), &run)?;
            jobs.push(run::job(name, fields, &mut unused)?);
        }
        let mut jobs = json!({ "jobs": jobs });
        installed::find_all(&mut jobs);
        Ok(Self { jobs, unused })
    }
}

#[cfg(test)]
mod tests;
