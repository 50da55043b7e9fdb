//! The files that the settings of a job name, and the programs among them.
//!
//! Paths are found by the kinds of the settings in the row of a policy, and in all texts of the
//! arguments that policies and simulators in Python get.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::environments::is_python_environment;
use crate::hub;
use crate::inputs::Lookup;
use crate::inputs::imports::{SearchPath, files_below, folders};
use crate::job::Job;
use crate::policies::{self, PolicyType};
use crate::settings::PathTo;
use crate::settings::kinds::PyName;
use crate::tree;

/// Most files of a folder. One with more is no checkpoint and no package, and does not count.
const MOST_FILES: usize = 10_000;

/// Longest text that may be a path.
const LONGEST_PATH: usize = 4096;

/// The setting of a Python process with its environment variables.
const VARIABLES: &str = "env";

/// Returns the files that decide what the policy of a job does.
pub(super) fn of_policy(job: &Job, variable: Lookup<'_>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let Some(policy) = PolicyType::of(&job.policy_type) else {
        return found;
    };
    let given = policies::given(policy, &job.policy_config);
    let settings = policy.row().settings().iter();
    for setting in settings.filter(|setting| !setting.is_of_place && setting.name != VARIABLES) {
        match (given.get(&setting.name), setting.path) {
            (Some(Value::String(_)), Some(PathTo::Interpreter)) | (None, _) => {}
            (Some(Value::String(path)), Some(to)) => {
                add(&mut found, &checkpoint(path.into(), to, variable));
            }
            (Some(Value::String(name)), None) if setting.is_callable() => {
                let variables = job.policy_config.get(VARIABLES);
                found.extend(of_factory(name, &[], variables, variable));
            }
            (Some(map @ Value::Object(_)), _) if !setting.is_unused => in_texts(&mut found, map),
            _ => {}
        }
    }
    found
}

/// Returns the programs of the environment of a job, and its mapping.
pub(super) fn of_environment(job: &Job, variable: Lookup<'_>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    if !is_python_environment(&job.environment) {
        return found;
    }
    let args = &job.env_args;
    let modules = ["import", "entry_point"].map(|field| one_or_more(args.get(field)));
    let variables = args.get(VARIABLES);
    found.extend(of_factory(
        &job.environment,
        &modules.concat(),
        variables,
        variable,
    ));
    if let Some(mapping) = args.get("mapping").and_then(Value::as_str) {
        add(&mut found, Path::new(mapping));
    }
    found
}

/// Returns the files that the arguments of the environment of a job name. It may write some of them.
pub(super) fn in_arguments(job: &Job) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    if !is_python_environment(&job.environment) {
        return found;
    }
    if let Some(kwargs) = job.env_args.get("env_kwargs") {
        in_texts(&mut found, kwargs);
    }
    in_texts(&mut found, &Value::Object(job.variations.clone()));
    found
}

/// Returns the folder of a downloaded model if `path` is the name of one.
fn checkpoint(path: PathBuf, to: PathTo, variable: Lookup<'_>) -> PathBuf {
    if to != PathTo::Checkpoint || path.is_dir() || !hub::is_name(&path) {
        return path;
    }
    let name = path.to_string_lossy().into_owned();
    hub::snapshot(&name, |name| variable(name).map(Into::into)).unwrap_or(path)
}

/// Returns the files of a Python callable, `file.py:name`, `package.module:name`,
/// `package.module.name` or `gym:package.module:id`, and those of further modules.
fn of_factory(
    name: &str,
    modules: &[&str],
    variables: Option<&Value>,
    variable: Lookup<'_>,
) -> BTreeSet<PathBuf> {
    let callable = PyName::of(name);
    let script = callable.as_ref().and_then(PyName::file);
    let path = SearchPath::new(folders(name, variables, variable));
    let mut found = script.map_or_else(BTreeSet::new, |script| path.script(script));
    let module = match (script, name.strip_prefix("gym:")) {
        (Some(_), _) => None,
        (None, Some(id)) => id.rsplit_once(':').map(|(module, _)| module),
        (None, None) => name
            .rsplit_once(':')
            .or_else(|| name.rsplit_once('.'))
            .map(|(module, _)| module),
    };
    let modules = modules.iter().copied().chain(module);
    found.extend(modules.flat_map(|module| path.module(module)));
    found
}

/// Returns a text, or the texts of a list.
fn one_or_more(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Adds the files and folders that exist and that any text in a value names. A word that is also
/// the name of a folder is no path: that of a folder has a `/`.
fn in_texts(found: &mut BTreeSet<PathBuf>, value: &Value) {
    tree::each_text(value, &mut |text| {
        let may_be_path = text.len() <= LONGEST_PATH && !text.contains(['\n', '\0']);
        let path = Path::new(text);
        if may_be_path && (text.contains('/') || path.is_file()) {
            add(found, path);
        }
    });
}

/// Adds a file, or the files of a folder.
fn add(found: &mut BTreeSet<PathBuf>, path: &Path) {
    if path.is_dir() {
        let files = files_below(path, MOST_FILES, |_| true);
        if files.len() <= MOST_FILES {
            found.extend(files);
        }
    } else if path.is_file() {
        found.insert(path.to_owned());
    }
}
