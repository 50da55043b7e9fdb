//! Finds modules that a Python interpreter does not have, by a short process that imports none of
//! them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::bail;
use jobs::job::Job;
use jobs::policies::PolicyType;
use jobs::programs::{find, interpreter_at};
use jobs::settings::kinds::PyName;
use jobs::tracking::TrackingArgs;
use serde_json::Value;

use crate::cli::Environment;
use crate::plan::missing::{Missing, PYTHON};
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

/// Leaves out the working directory: wandb writes its files into a folder `wandb` there, which
/// would pass for the package.
const BEFORE: &str = "import sys; sys.path[:] = [path for path in sys.path if path]\n";

/// An interpreter that jobs need, and what is imported in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NeededPython {
    /// The interpreter; a name is looked up in `PATH`.
    pub python: PathBuf,
    /// Variables that are set, or with `None` removed. Those whose values only ranks know are left
    /// out.
    pub variables: Vec<(String, Option<String>)>,
    /// Whether there are such, so that only ranks know what is missing.
    pub is_of_ranks: bool,
    /// Top-level packages.
    pub modules: Vec<String>,
    /// What to say about each of these packages if it is missing.
    pub refusals: Vec<Missing>,
    /// The environment or policy that needs it, for messages.
    pub user: String,
}

impl NeededPython {
    /// Returns the command of the interpreter with its variables.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
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
    /// Returns the object of the job in which its fields are.
    pub(super) fn object(self) -> &'static str {
        match self {
            Self::Environment => "arena_env_args",
            Self::Policy => "policy_config_dict",
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

    /// Returns the variables that the job sets for it, and whether there are others whose values
    /// only ranks know, as that of `{gpu}`.
    fn variables(self, job: &Job) -> (Vec<(String, Option<String>)>, bool) {
        let fields = match self {
            Self::Environment => &job.env_args,
            Self::Policy => &job.policy_config,
        };
        let given = fields.get("env").and_then(Value::as_object);
        let given = given.into_iter().flatten().map(|(name, value)| {
            let value = match value {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            };
            (name.clone(), value)
        });
        let is_of_ranks =
            |(_, value): &(_, Option<String>)| value.as_ref().is_some_and(|it| it.contains('{'));
        let (of_ranks, known): (Vec<_>, Vec<_>) = given.partition(is_of_ranks);
        (known, !of_ranks.is_empty())
    }

    /// Returns the packages that it imports before any code of its own could make others
    /// importable. Its worker needs numpy.
    fn modules(self, job: &Job) -> impl Iterator<Item = String> {
        let own = match self {
            Self::Environment => of_environment(job),
            Self::Policy => of_policy(job),
        };
        ["numpy".to_owned()].into_iter().chain(own)
    }
}

impl NeededPython {
    /// Adds the modules that a part of a job needs to those of its interpreter.
    pub(super) fn add(all: &mut Vec<Self>, job: &Job, user: ModuleUser, python: PathBuf) {
        let (variables, is_of_ranks) = user.variables(job);
        let known = all.iter().position(|it| {
            it.python == python && it.variables == variables && it.is_of_ranks == is_of_ranks
        });
        let position = known.unwrap_or(all.len());
        if known.is_none() {
            all.push(Self {
                python,
                variables,
                is_of_ranks,
                user: user.text(job),
                ..Self::default()
            });
        }
        let needed = &mut all[position];
        for name in user.modules(job) {
            if !needed.modules.contains(&name) {
                let what = format!(
                    "{}: `{}` finds no module `{name}`; install it there, or name another \
                     interpreter as `{}.python`",
                    user.text(job),
                    needed.python.display(),
                    user.object()
                );
                needed.refusals.push(Missing::of(job, what));
                needed.modules.push(name);
            }
        }
    }

    /// Asks the interpreter for all modules. Without an answer, nothing is missing.
    ///
    /// # Errors
    /// Returns the first module that is missing.
    pub(super) fn check(self) -> Result<(), Missing> {
        if self.is_of_ranks {
            return Ok(());
        }
        let mut command = self.command();
        let modules: Vec<_> = self.modules.iter().map(String::as_str).collect();
        let missing = missing_of(&mut command, &modules, "").unwrap_or_default();
        let mut all = self.modules.iter().zip(self.refusals);
        let found = all.find(|(name, _)| missing.contains(name));
        found.map_or(Ok(()), |(_, refusal)| Err(refusal))
    }
}

/// Checks the interpreter of the experiment trackers and their packages, so that nobody finds out
/// the next morning that there is nothing to see. Without an answer of the interpreter the check is
/// left to rank 0, which says what fails.
///
/// # Errors
/// Returns the first thing that is certainly missing.
pub fn check_trackers(tracking: &TrackingArgs, env: &Environment) -> anyhow::Result<()> {
    let trackers = tracking.trackers();
    let packages: Vec<_> = trackers.iter().filter_map(|it| it.package()).collect();
    let Some(tracker) = packages.first() else {
        return Ok(());
    };
    let given = tracking.track_python.as_deref();
    let python = interpreter_at(given.unwrap_or(PYTHON.as_ref()));
    if find(&python, env.get("PATH")).is_none() {
        let found = match given {
            Some(given) => format!("`{}` is neither an interpreter nor a venv", given.display()),
            None => format!("there is no `{PYTHON}` in PATH"),
        };
        bail!(
            "--track {tracker} needs Python: {found}; name an interpreter or a venv with \
             --track-python"
        );
    }
    let missing = missing_of(&mut Command::new(&python), &packages, BEFORE).unwrap_or_default();
    match packages
        .iter()
        .find(|package| missing.iter().any(|name| name == *package))
    {
        Some(package) => bail!(
            "--track {package}: `{}` finds no module `{package}`; `pip install {package}` there, \
             or name another interpreter with --track-python",
            python.display()
        ),
        None => Ok(()),
    }
}

/// Returns those of the modules that the interpreter `command` does not find, or `None` if it gives
/// no answer. The script `before` runs first.
fn missing_of(command: &mut Command, modules: &[&str], before: &str) -> Option<Vec<String>> {
    command
        .args(["-c", &format!("{before}{SCRIPT}")])
        .args(modules);
    let ended = timed::run(command, PATIENCE).ok()?;
    let text = ended.status.success().then_some(ended.stdout)?;
    let line = text.lines().find_map(|line| line.strip_prefix(ANSWER))?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// Returns the package of a job's environment.
fn of_environment(job: &Job) -> Option<String> {
    let of_list = |field: &str| match job.env_args.get(field)? {
        Value::String(name) => Some(package(name)),
        Value::Array(names) => names.first().and_then(Value::as_str).map(package),
        _ => None,
    };
    let own = || match job.environment.split_once(':') {
        Some(("gym", _)) => Some("gymnasium".to_owned()),
        Some((place, _)) if place.ends_with(".py") => None,
        Some((place, _)) => Some(package(place)),
        None => Some(package(&job.environment)),
    };
    of_list("import")
        .or_else(|| of_list("entry_point"))
        .or_else(own)
}

/// Returns the package of a job's policy.
fn of_policy(job: &Job) -> Option<String> {
    if PolicyType::of(&job.policy_type) == Some(PolicyType::Lerobot) {
        return Some("lerobot".to_owned());
    }
    match PyName::of(job.policy_config.get("policy")?.as_str()?)? {
        PyName::InModule { module, .. } => Some(package(&module)),
        PyName::InFile { .. } => None,
    }
}

/// Returns the package of a module.
fn package(module: &str) -> String {
    module.split('.').next().unwrap_or(module).to_owned()
}
