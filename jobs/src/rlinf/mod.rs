//! Reads `--config FILE.yaml`: RLinf's configuration of an evaluation.
//!
//! ```text
//! a.yaml ─► tree ─┐
//! b.yaml ─► tree ─┴─ merge (later files win) ─ references ─► sections ─► Config ─► jobs
//! ```
//! Names that resemble one that `rrun` reads are refused. Others (RLinf's own settings, training,
//! Hydra) are accepted, and reported once as unused.
//! A configuration then creates its jobs, or changes those of a jobs file.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::experiment::Change;
use crate::model_server::ModelServer;
use crate::placement::Components;
use crate::policies::{PolicyType, canonical_policy};
use crate::refusal::Refusal;
use crate::tree;
use crate::tree::Resolver;

mod sections;

/// Stands in for a file name in errors about `--set`.
const SET: &str = "--set";

/// The merged content of one or more configuration files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Paths of the files, in order.
    pub files: Vec<PathBuf>,
    /// The last file that names an environment, after which the job is named.
    namesake: Option<PathBuf>,
    /// `cluster.component_placement`.
    pub components: Option<Components>,
    /// `cluster.num_nodes`.
    pub num_nodes: Option<usize>,
    /// `runner.logger.log_path`: the run folder.
    pub log_path: Option<PathBuf>,
    /// `model_server`: as in a jobs file, whose own model server it replaces.
    pub model_server: Option<ModelServer>,
    /// `jobs`: as in a jobs file.
    pub(crate) jobs: Option<Value>,
    /// Fields that replace those of every job.
    over: Map<String, Value>,
    /// Fields for the jobs that do not set them.
    under: Map<String, Value>,
    /// Dotted names of the settings without effect.
    pub unused: Vec<String>,
}

impl Config {
    /// Reads files, merges later ones over earlier ones, and applies `sets` over all of them.
    /// `variable` looks up `${oc.env:NAME}`.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn read(
        files: &[PathBuf],
        sets: &[Change],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let tree = |path: &PathBuf| Ok((path.clone(), tree::parse(path, &tree::read(path)?)?));
        let trees: Result<Vec<_>, Refusal> = files.iter().map(tree).collect();
        Self::of_trees(trees?, sets, variable)
    }

    /// Does the same for files that were already parsed.
    fn of_trees(
        mut trees: Vec<(PathBuf, Value)>,
        sets: &[Change],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let mut components: Option<Components> = None;
        let files: Vec<_> = trees.iter().map(|(path, _)| path.clone()).collect();
        let mut of_files = trees.iter().rev();
        let namesake = of_files.find(|(_, tree)| names_environment(tree));
        let namesake = namesake.map(|(path, _)| path.clone());
        trees.extend(sets.iter().map(|set| (SET.into(), set.tree())));
        for (path, tree) in &mut trees {
            if let Some(placed) = tree::take(tree, "cluster.component_placement") {
                let placed = Components::from_value(&placed);
                let placed = placed.map_err(|err| Refusal::in_file(path, err))?;
                components = Some(placed.over(components.unwrap_or_default()));
            }
        }
        let nothing = Value::Object(Map::new());
        let merged = trees.iter().fold(nothing, |merged, (_, tree)| {
            tree::merge(merged, tree.clone())
        });
        let read =
            |tree: &Value| sections::read(&Resolver::new(tree, variable, false).resolve(tree));
        let config = read(&merged).map_err(|refusal| {
            let mut alone = trees.iter().rev();
            let same = alone.find(|(_, tree)| read(tree).as_ref() == Err(&refusal));
            let path = same.or(trees.last()).map(|(path, _)| path.as_path());
            Refusal::in_file(path.unwrap_or(Path::new("")), refusal)
        })?;
        refuse_idle(sets, &config.unused)?;
        Ok(Self {
            files,
            namesake,
            components,
            ..config
        })
    }

    /// Returns whether it defines jobs: a list, or the environment and the policy of one job.
    pub fn has_jobs(&self) -> bool {
        self.jobs.is_some()
            || (self.environment().is_some() && self.under.contains_key("policy_type"))
    }

    /// Returns whether it has settings of jobs.
    pub fn changes_jobs(&self) -> bool {
        !self.over.is_empty() || !self.under.is_empty()
    }

    fn environment(&self) -> Option<&Value> {
        self.under.get("arena_env_args")?.get("environment")
    }
}

/// Refuses a setting on the command line that has no effect. In a file such a setting may be there
/// for another program.
fn refuse_idle(sets: &[Change], unused: &[String]) -> Result<(), Refusal> {
    let is_below = |name: &str, of: &str| {
        name.strip_prefix(of)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let idle = sets.iter().find(|set| {
        let mut unused = unused.iter();
        unused.any(|unused| is_below(set.name(), unused) || is_below(unused, set.name()))
    });
    let Some(idle) = idle else { return Ok(()) };
    let hint = sections::nearest(idle.name())
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default();
    let idle = Refusal::at(idle.name(), format_args!("it has no effect here{hint}"));
    Err(Refusal::in_file(Path::new(SET), idle))
}

fn names_environment(tree: &Value) -> bool {
    let mut names = ["/env/eval/environment", "/env/eval/env_type"].into_iter();
    names.any(|name| tree.pointer(name).is_some())
}

impl Config {
    /// Returns the jobs in the form of a jobs file: those of `jobs` (a parsed jobs file), otherwise
    /// the list of the configuration, otherwise the single job that it describes, named after the
    /// file that names its environment. Returns `None` if there are none.
    pub fn jobs(&self, jobs: Option<Value>) -> Option<Value> {
        let list = self.jobs.clone().map(|list| json!({"jobs": list}));
        let mut file = jobs.or(list).or_else(|| {
            self.has_jobs()
                .then(|| json!({"jobs": [{"name": self.name()}]}))
        })?;
        let entries = file.get_mut("jobs").and_then(Value::as_array_mut);
        for entry in entries
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            self.apply(entry);
        }
        Some(file)
    }

    /// Returns the stem of the last file that names an environment (`behavior` for
    /// `behavior.yaml`), otherwise of the last file. So an additional file that only says where to
    /// run does not rename the job and its videos.
    pub(crate) fn name(&self) -> String {
        let file = self.namesake.as_ref().or(self.files.last());
        file.and_then(|file| file.file_stem())
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    fn apply(&self, job: &mut Map<String, Value>) {
        self.fill_in(job);
        if self.over.contains_key("total_num_envs")
            && let Some(env) = job.get_mut("arena_env_args").and_then(Value::as_object_mut)
        {
            env.shift_remove("num_envs");
        }
        let auto_reset =
            self.over.get("auto_reset").or(job.get("auto_reset")) == Some(&Value::Bool(true));
        let sets_length = self.over.contains_key("rollout_epoch")
            || (auto_reset && self.over.contains_key("max_steps_per_rollout_epoch"));
        if sets_length {
            job.shift_remove("num_episodes");
            job.shift_remove("num_steps");
        }
        for (field, value) in &self.over {
            match (job.get_mut(field), value) {
                (Some(Value::Object(own)), Value::Object(value)) => own.extend(value.clone()),
                _ => drop(job.insert(field.clone(), value.clone())),
            }
        }
    }

    /// Sets the fields that a job lacks. Arguments are only set together with the environment or
    /// policy that they belong to.
    fn fill_in(&self, job: &mut Map<String, Value>) {
        if let Some(policy) = self.under.get("policy_type") {
            job.entry("policy_type").or_insert(policy.clone());
        }
        if let Some(ours) = self.under.get("arena_env_args") {
            let own = job.entry("arena_env_args").or_insert_with(|| json!({}));
            let name = own.get("environment").filter(|name| !name.is_null());
            let named = self.environment();
            if name.is_none() || named.is_none() || name == named {
                fill(own, ours);
            }
        }
        let Some(ours) = self.under.get("policy_config_dict") else {
            return;
        };
        // Either may use another name of the same policy.
        let canonical = |name: &Value| name.as_str().map(canonical_policy).map(str::to_owned);
        let policy = job.get("policy_type").and_then(canonical);
        let is_meant = match self.under.get("policy_type") {
            Some(named) => policy == canonical(named),
            None => policy
                .and_then(|policy| PolicyType::of(&policy))
                .is_some_and(|policy| policy.row().has_checkpoint),
        };
        if is_meant {
            let is_old = job.contains_key("policy_args");
            let name = ["policy_config_dict", "policy_args"][usize::from(is_old)];
            fill(job.entry(name).or_insert_with(|| json!({})), ours);
        }
    }
}

/// Adds the missing fields.
fn fill(own: &mut Value, ours: &Value) {
    let (Value::Object(own), Value::Object(ours)) = (own, ours) else {
        return;
    };
    for (key, value) in ours {
        own.entry(key).or_insert(value.clone());
    }
}

#[cfg(test)]
mod tests;
