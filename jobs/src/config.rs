//! `--config FILE.yaml`: RLinf's configuration of an evaluation, as far as an evaluation needs it.
//!
//! ```text
//! a.yaml ─► tree ─┐
//! b.yaml ─► tree ─┴─ merge (later files win) ─ references ─► sections ─► Config ─► jobs
//! ```
//! Sections that are ours refuse names that nobody knows; what RLinf has beside them (training, models' inner settings,
//! Hydra) is accepted and counted up once as unused.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::file::Refusal;
use crate::model_server::ModelServer;
use crate::placement::{Components, PlacementError};

mod apply;
mod keys;
mod references;
mod sections;
mod set;
pub(crate) mod tree;

pub use set::Override;

/// What settings on the command line are called where a file would be named.
const SET: &str = "--set";

/// What one or more configuration files say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The files, in order.
    pub files: Vec<PathBuf>,
    /// The last one that names an environment, and so its job.
    namesake: Option<PathBuf>,
    /// Whether settings of the command line are in it.
    is_set: bool,
    /// `cluster.component_placement`.
    pub components: Option<Components>,
    /// `cluster.num_nodes`.
    pub num_nodes: Option<usize>,
    /// `runner.logger.log_path`: the run folder.
    pub log_path: Option<PathBuf>,
    /// `model_server`: as in a jobs file, whose own it takes the place of.
    pub model_server: Option<ModelServer>,
    /// `jobs`: as in a jobs file.
    jobs: Option<Value>,
    /// Fields of a job that hold for all jobs.
    over: Map<String, Value>,
    /// Fields of a job that hold for those that do not say.
    under: Map<String, Value>,
    /// Settings that have no effect here, by their dotted names.
    pub unused: Vec<String>,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read config `{}`: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It is no YAML.
    #[error("`{}`: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where, and why.
        reason: String,
    },
    /// A name or a value is wrong.
    #[error("`{}`: {refusal}", path.display())]
    Field {
        /// The last file that says it.
        path: PathBuf,
        /// Which, and why.
        refusal: Refusal,
    },
    /// The placement.
    #[error("`{}`: {err}", path.display())]
    Placement {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        err: PlacementError,
    },
}

impl Config {
    /// Reads files, later ones over earlier ones, and `sets` over all of them; `variable` answers `${oc.env:NAME}`.
    ///
    /// # Errors
    /// [`ConfigError`] for the first thing that is wrong.
    pub fn read(
        files: &[PathBuf],
        sets: &[Override],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let texts = files.iter().map(|path| Ok((path.clone(), tree::read(path)?)));
        Self::from_texts(texts.collect::<Result<Vec<_>, _>>()?, sets, variable)
    }

    /// The same for texts that are there.
    fn from_texts(
        texts: Vec<(PathBuf, String)>,
        sets: &[Override],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let mut components: Option<Components> = None;
        let files: Vec<_> = texts.iter().map(|(path, _)| path.clone()).collect();
        let read = texts.into_iter().map(|(path, text)| tree::parse(&path, &text).map(|tree| (path, tree)));
        let set = sets.iter().map(|set| Ok((PathBuf::from(SET), set.tree())));
        let mut trees = Vec::new();
        for read in read.chain(set) {
            let (path, mut tree) = read?;
            if let Some(placed) = tree::take(&mut tree, &["cluster", "component_placement"]) {
                let placed = Components::from_value(&placed);
                let placed = placed.map_err(|err| ConfigError::Placement { path: path.clone(), err })?;
                components = Some(placed.over(components.unwrap_or_default()));
            }
            trees.push((path, tree));
        }
        let nothing = Value::Object(Map::new());
        let merged = trees.iter().fold(nothing, |merged, (_, tree)| tree::merge(merged, tree.clone()));
        let merged = references::resolve(&merged, variable);
        let refuse = |refusal: Refusal| ConfigError::Field { path: culprit(&trees, &refusal), refusal };
        let config = sections::read(&merged).map_err(refuse)?;
        refuse_idle(sets, &config.unused)?;
        let of_file = trees.iter().filter(|(path, _)| path != Path::new(SET));
        let namesake = of_file.rev().find(|(_, tree)| names_environment(tree)).map(|(path, _)| path.clone());
        Ok(Self { files, namesake, components, is_set: !sets.is_empty(), ..config })
    }

    /// Whether it brings jobs of its own: a list, or the environment and the policy of one.
    pub fn has_jobs(&self) -> bool {
        self.jobs.is_some() || (self.environment().is_some() && self.under.contains_key("policy_type"))
    }

    /// Whether nothing was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.is_set
    }

    /// Whether it has settings of jobs.
    pub fn changes_jobs(&self) -> bool {
        !self.over.is_empty() || !self.under.is_empty()
    }

    /// Whether it brings a list of jobs.
    pub(crate) fn has_list(&self) -> bool {
        self.jobs.is_some()
    }

    fn environment(&self) -> Option<&Value> {
        self.under.get("arena_env_args")?.get("environment")
    }
}

/// Refuses a setting on the command line that has no effect: in a file it may be there for another program.
fn refuse_idle(sets: &[Override], unused: &[String]) -> Result<(), ConfigError> {
    let is_below =
        |name: &str, of: &str| name.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let idle = sets
        .iter()
        .find(|set| unused.iter().any(|unused| is_below(&set.name(), unused) || is_below(unused, &set.name())));
    let Some(idle) = idle else { return Ok(()) };
    let hint = keys::nearest(&idle.name()).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    let reason = format!("no use is made of it here{hint}");
    Err(ConfigError::Field { path: PathBuf::from(SET), refusal: Refusal { place: idle.name(), reason } })
}

fn names_environment(tree: &Value) -> bool {
    let eval = tree.get("env").and_then(|env| env.get("eval"));
    ["environment", "env_type"].iter().any(|name| eval.and_then(|eval| eval.get(name)).is_some())
}

/// The last file that has what was refused, else the last one.
fn culprit(trees: &[(PathBuf, Value)], refusal: &Refusal) -> PathBuf {
    let path = refusal.place.replace(" field ", ".");
    let parts: Vec<&str> = path.split('.').collect();
    let has = |tree: &Value| parts.iter().try_fold(tree, |tree, part| tree.get(part)).is_some();
    let found = trees.iter().rev().find(|(_, tree)| has(tree)).or(trees.last());
    found.map_or_else(|| Path::new("").to_owned(), |(path, _)| path.clone())
}

#[cfg(test)]
mod tests;
