//! Finds modules that a Python interpreter does not have, by a short process that imports none of
//! them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use jobs::job::Job;
use jobs::policies::PolicyType;
use jobs::settings::kinds::PyName;
use serde_json::{Map, Value};

use crate::plan::missing::Missing;
use crate::process::timed;

/// Prints the missing ones of the modules in its arguments, without those for which the lookup
/// fails.
const SCRIPT: &str = "\
import sys
from importlib.util import find_spec
def is_missing(name):
    try: return find_spec(name) is None
    except Exception: return False
print('rrun-missing', *filter(is_missing, sys.argv[1:]))
";

/// The prefix of the line with the answer; a wrapper of an interpreter may print more lines.
const ANSWER: &str = "rrun-missing";

/// Timeout, because a wrapper may be slow; then the check is left to the ranks.
const PATIENCE: Duration = Duration::from_secs(10);

/// The query to one interpreter, with the variables of the jobs' environments.
#[derive(Debug)]
pub(super) struct Probe {
    python: PathBuf,
    variables: Map<String, Value>,
    modules: Vec<NeededModule>,
}

/// An interpreter that jobs need, and what is imported in it.
#[derive(Clone, Debug, PartialEq)]
pub struct NeededPython {
    /// The interpreter; a name is looked up in `PATH`.
    pub python: PathBuf,
    /// Variables that are set, or with `None` removed. Those whose values only ranks know are left
    /// out.
    pub variables: Vec<(String, Option<String>)>,
    /// Top-level packages.
    pub modules: Vec<String>,
    /// The environment or policy that needs it, for messages.
    pub user: String,
}

/// A module, and the first job that needs it.
#[derive(Debug)]
struct NeededModule {
    name: String,
    job: Job,
    user: ModuleUser,
}

/// What in a job runs in an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModuleUser {
    /// The environment.
    Environment,
    /// The policy, of the type `python` or `lerobot`.
    Policy,
}

impl ModuleUser {
    /// Returns the fields of the job that concern the interpreter.
    fn fields(self, job: &Job) -> &Map<String, Value> {
        match self {
            Self::Environment => &job.env_args,
            Self::Policy => &job.policy_config,
        }
    }

    /// Returns the packages that it imports before any code of its own could make others
    /// importable.
    fn modules(self, job: &Job) -> Vec<String> {
        match self {
            Self::Environment => modules(job),
            Self::Policy => policy_modules(job),
        }
    }

    /// Describes it for errors.
    fn text(self, job: &Job) -> String {
        match self {
            Self::Environment => format!("environment `{}`", job.environment),
            Self::Policy => {
                let text = |field: &str| job.policy_config.get(field).and_then(Value::as_str);
                let name = text("policy").or_else(|| text("model_path"));
                format!("policy `{}`", name.unwrap_or_default())
            }
        }
    }

    /// Returns the object of the job in which its fields are.
    pub(super) fn object(self) -> &'static str {
        match self {
            Self::Environment => "arena_env_args",
            Self::Policy => "policy_config_dict",
        }
    }
}

impl Probe {
    /// Adds the modules that a part of a job needs to the queries.
    pub(super) fn add(probes: &mut Vec<Self>, job: &Job, user: ModuleUser, python: PathBuf) {
        let variables = user
            .fields(job)
            .get("env")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let known = probes
            .iter()
            .position(|probe| probe.python == python && probe.variables == variables);
        let position = known.unwrap_or(probes.len());
        if known.is_none() {
            probes.push(Self {
                python,
                variables,
                modules: Vec::new(),
            });
        }
        let probe = &mut probes[position];
        for name in user.modules(job) {
            if probe.modules.iter().all(|known| known.name != name) {
                let job = job.clone();
                probe.modules.push(NeededModule { name, job, user });
            }
        }
    }

    /// Returns what it would ask.
    pub(super) fn needed(self) -> NeededPython {
        let variables = self.variables.into_iter().filter_map(|(name, value)| {
            Some(match value {
                Value::Null => (name, None),
                // Only ranks know the values of `{gpu}` and the like.
                Value::String(text) if text.contains('{') => return None,
                Value::String(text) => (name, Some(text)),
                other => (name, Some(other.to_string())),
            })
        });
        let user = self.modules.first();
        NeededPython {
            python: self.python,
            variables: variables.collect(),
            user: user.map_or_else(String::new, |module| module.user.text(&module.job)),
            modules: self.modules.into_iter().map(|module| module.name).collect(),
        }
    }

    /// Asks the interpreter for all modules.
    ///
    /// # Errors
    /// Returns the first module that is missing.
    pub(super) fn run(self) -> Result<(), Missing> {
        let Some(missing) = self.ask() else {
            return Ok(());
        };
        let mut found = self
            .modules
            .iter()
            .filter(|module| missing.contains(&module.name));
        found.next().map_or(Ok(()), |module| {
            let (job, user) = (&module.job, module.user);
            let what = format!(
                "{}: `{}` finds no module `{}`; install it there, or name another interpreter as \
                 `{}.python`",
                user.text(job),
                self.python.display(),
                module.name,
                user.object()
            );
            Err(Missing::of(job, what))
        })
    }

    /// Returns the modules that the interpreter does not find, or `None` if it gives no answer.
    fn ask(&self) -> Option<Vec<String>> {
        let mut command = Command::new(&self.python);
        for (name, value) in &self.variables {
            match value {
                Value::Null => command.env_remove(name),
                // Only ranks know the values of `{gpu}` and the like.
                Value::String(text) if text.contains('{') => return None,
                Value::String(text) => command.env(name, text),
                other => command.env(name, other.to_string()),
            };
        }
        let modules: Vec<_> = self.modules.iter().map(|module| &*module.name).collect();
        missing_of(&mut command, &modules, "")
    }
}

/// Returns those of the modules that the interpreter `command` does not find, or `None` if it gives
/// no answer. The script `before` runs first.
pub(super) fn missing_of(
    command: &mut Command,
    modules: &[&str],
    before: &str,
) -> Option<Vec<String>> {
    command
        .args(["-c", &format!("{before}{SCRIPT}")])
        .args(modules);
    let ended = timed::run(command, PATIENCE).ok()?;
    let text = ended.status.success().then_some(ended.stdout)?;
    let line = text.lines().find_map(|line| line.strip_prefix(ANSWER))?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// Returns the packages that a job's environment imports before any code of its own could make
/// others importable.
fn modules(job: &Job) -> Vec<String> {
    let package = |name: &str| name.split('.').next().unwrap_or(name).to_owned();
    let of_list = |field: &str| match job.env_args.get(field) {
        Some(Value::String(name)) => Some(package(name)),
        Some(Value::Array(names)) => names.first().and_then(Value::as_str).map(package),
        _ => None,
    };
    let own = || match job.environment.split_once(':') {
        Some(("gym", _)) => Some("gymnasium".to_owned()),
        Some((place, _)) if place.ends_with(".py") => None,
        Some((place, _)) => Some(package(place)),
        None => Some(package(&job.environment)),
    };
    let first = of_list("import")
        .or_else(|| of_list("entry_point"))
        .or_else(own);
    ["numpy".to_owned()].into_iter().chain(first).collect()
}

/// Returns numpy, which the worker of a policy needs, and the package of the policy itself.
fn policy_modules(job: &Job) -> Vec<String> {
    if PolicyType::of(&job.policy_type) == Some(PolicyType::Lerobot) {
        return vec!["numpy".to_owned(), "lerobot".to_owned()];
    }
    let name = job.policy_config.get("policy").and_then(Value::as_str);
    let package = match name.and_then(PyName::of) {
        Some(PyName::InModule { module, .. }) => module.split('.').next().map(str::to_owned),
        Some(PyName::InFile { .. }) | None => None,
    };
    ["numpy".to_owned()].into_iter().chain(package).collect()
}
