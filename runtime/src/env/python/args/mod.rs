//! Parses the fields of a job's `arena_env_args` that concern a Python environment.

use std::path::{Path, PathBuf};

use jobs::environments::DECLARED_MEMORY;
use jobs::environments::{ARENAS, PYTHON};
use jobs::job::Job;
use serde_json::{Map, Value};

use crate::env::EnvError;
use crate::env::python::fork_server::StartMethod;
use crate::env::python::mapping;
use crate::env::python::refusal::{refuse, unknown};
use crate::env::python::variables::{Variable, read_variable};

/// Maximum bytes of `env_kwargs` and the mapping, which are sent in one packet of at most some 200
/// kB.
const LONGEST_CONFIG: usize = 64 << 10;

/// The configuration of a job's Python environment.
#[derive(Clone, Debug, PartialEq)]
pub struct PythonSettings {
    /// Name of the environment: `gym:<id>`, `pkg.mod:factory`, `pkg.mod.factory` or
    /// `file.py:factory`.
    pub environment: String,
    /// Keyword arguments of the factory.
    pub env_kwargs: Map<String, Value>,
    /// Modules to import first.
    pub imports: Vec<String>,
    /// Path of the Python interpreter.
    pub python: PathBuf,
    /// Number of copies in one process.
    pub envs_per_process: usize,
    /// Control frequency in steps per second, if the environment does not define it.
    pub control_hz: Option<u32>,
    /// Maximum number of steps of an episode, if the environment does not define it.
    pub max_episode_steps: Option<u32>,
    /// Rule that decides whether an episode is successful.
    pub success: Option<String>,
    /// The mapping of observations and actions; validated, but not yet against the environment.
    pub mapping: Map<String, Value>,
    /// Environment variables of the process; a null value removes one.
    pub variables: Vec<Variable>,
    /// X display of the process.
    pub display: DisplayChoice,
    /// Number of episodes after which a process is replaced.
    pub recycle_after: Option<u64>,
    /// True if `reset` receives the number of the episode.
    pub pass_episode: bool,
    /// True if actions are clamped to their range before the environment gets them.
    pub clip_actions: bool,
    /// True if the episode ends when the success rule holds, even if the environment continues.
    pub end_on_success: bool,
    /// Whether the factory returns a VectorEnv; `None` means that its result decides.
    pub vector: Option<bool>,
    /// How the processes are started.
    pub start_method: StartMethod,
    /// Names of fields without effect.
    pub ignored: Vec<String>,
}

/// The X display of a simulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisplayChoice {
    /// The display of the rank, if there is one; the command line may request another.
    Inherited,
    /// A display that is started for the simulator.
    Own,
    /// The display with this name.
    Named(String),
}

impl PythonSettings {
    /// Reads the fields of a job.
    ///
    /// # Errors
    /// Returns [`EnvError::Argument`] for the first field that is wrong or unknown.
    pub fn new(job: &Job) -> Result<Self, EnvError> {
        let fields = PythonFields(&job.env_args);
        fields.refuse_unknown()?;
        check_name(&job.environment)?;
        let mapping = match fields.get("mapping") {
            Some(value) => mapping::read(value)?,
            None => Map::new(),
        };
        let settings = Self {
            environment: job.environment.clone(),
            env_kwargs: fields.object("env_kwargs")?,
            imports: [fields.strings("import")?, fields.strings("entry_point")?].concat(),
            python: interpreter(fields.string("python")?.as_deref())?,
            envs_per_process: fields.positive("envs_per_process")?.unwrap_or(1) as usize,
            control_hz: fields.positive("control_hz")?,
            max_episode_steps: fields.positive("max_episode_steps")?,
            success: fields
                .string("success")?
                .map(|rule| check_success(&rule).map(|()| rule))
                .transpose()?,
            mapping,
            variables: fields.variables("env")?,
            display: fields.display("display")?,
            recycle_after: fields.positive("recycle_after")?.map(u64::from),
            pass_episode: fields.boolean("pass_episode")?.unwrap_or(false),
            clip_actions: fields.boolean("clip_actions")?.unwrap_or(false),
            end_on_success: fields.boolean("end_on_success")?.unwrap_or(false),
            vector: fields.boolean("vector")?,
            start_method: fields.start_method("start_method")?,
            ignored: job
                .env_args
                .keys()
                .filter(|key| ARENAS.contains(&key.as_str()))
                .cloned()
                .collect(),
        };
        settings.refuse_too_long()?;
        if settings.vector == Some(true) && settings.environment.starts_with("gym:") {
            return Err(refuse(
                "vector",
                &true.into(),
                "which is for factories: an id of gymnasium makes single copies",
            ));
        }
        Ok(settings)
    }

    fn refuse_too_long(&self) -> Result<(), EnvError> {
        let bytes =
            |map: &Map<String, Value>| serde_json::to_string(map).map_or(0, |text| text.len());
        for (field, bytes) in [
            ("env_kwargs", bytes(&self.env_kwargs)),
            ("mapping", bytes(&self.mapping)),
        ] {
            if bytes > LONGEST_CONFIG {
                let wanted = format!("expected at most {LONGEST_CONFIG} bytes");
                return Err(EnvError::Argument {
                    field: field.to_owned(),
                    found: format!("{bytes} bytes"),
                    wanted,
                });
            }
        }
        Ok(())
    }

    /// Returns whether the mapping uses `render()`.
    pub fn renders(&self) -> bool {
        let cameras = self.mapping.get("video").and_then(Value::as_object);
        cameras.is_some_and(|cameras| {
            cameras
                .values()
                .any(|camera| camera.get("render") == Some(&Value::Bool(true)))
        })
    }
}

/// Checks the form of the name, and that the file exists if it names one.
fn check_name(name: &str) -> Result<(), EnvError> {
    let wanted = if let Some(id) = name.strip_prefix("gym:") {
        (id.is_empty() || id.contains(char::is_whitespace))
            .then_some("expected an id, for example `gym:Pusher-v5`")
    } else if let Some((file, factory)) = name.rsplit_once(".py:") {
        let file = format!("{file}.py");
        if factory.is_empty() {
            Some("expected a factory, for example `file.py:make`")
        } else if !Path::new(&file).is_file() {
            Some("and there is no such file; it is looked for from the working directory")
        } else {
            None
        }
    } else {
        let identifier = |part: &str| {
            let mut letters = part.chars();
            letters
                .next()
                .is_some_and(|first| first.is_alphabetic() || first == '_')
                && letters.all(|letter| letter.is_alphanumeric() || letter == '_')
        };
        let (module, factory) = name
            .split_once(':')
            .or_else(|| name.rsplit_once('.'))
            .unwrap_or(("", name));
        let whole = module.split('.').chain(factory.split('.')).all(identifier);
        (!whole).then_some("expected `gym:<id>`, `package.module:factory` or `file.py:factory`")
    };
    match wanted {
        Some(wanted) => Err(refuse("environment", &name.into(), wanted)),
        None => Ok(()),
    }
}

fn check_success(rule: &str) -> Result<(), EnvError> {
    let known = match rule.strip_prefix("reward>=") {
        Some(number) => number.trim().parse::<f64>().is_ok_and(f64::is_finite),
        None => {
            matches!(rule, "is_success" | "terminated")
                || rule
                    .strip_prefix("info.")
                    .is_some_and(|key| !key.trim().is_empty())
        }
    };
    let wanted = "expected `info.<key>`, `is_success`, `terminated` or `reward>=X`";
    if known {
        Ok(())
    } else {
        Err(refuse("success", &rule.into(), wanted))
    }
}

/// Finds the interpreter: a name in `PATH`, a path, or the folder of a virtual environment.
fn interpreter(given: Option<&str>) -> Result<PathBuf, EnvError> {
    let name = given.unwrap_or("python3");
    find_interpreter(name).map_err(|reason| refuse("python", &name.into(), &reason.to_string()))
}

/// Why a name means no interpreter, as a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterpreterError {
    /// No folder in `PATH` has a program of this name.
    #[error("and PATH has no such program")]
    NotInPath,
    /// The path is no program, and no folder that has one.
    #[error("expected an interpreter or the folder of a venv")]
    NotAProgram,
}

/// Finds an interpreter: a name in `PATH`, a path, or the folder of a virtual environment.
///
/// # Errors
/// Returns [`InterpreterError`] if there is none.
pub(crate) fn find_interpreter(name: &str) -> Result<PathBuf, InterpreterError> {
    let path = Path::new(name);
    if !name.contains('/') && !path.is_dir() {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let there = std::env::split_paths(&paths).any(|folder| is_program(&folder.join(name)));
        return if there {
            Ok(path.to_owned())
        } else {
            Err(InterpreterError::NotInPath)
        };
    }
    let path = if path.is_dir() {
        path.join("bin/python")
    } else {
        path.to_owned()
    };
    if is_program(&path) {
        Ok(path)
    } else {
        Err(InterpreterError::NotAProgram)
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path)
        .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Access to the fields of `arena_env_args`; null counts as absent.
struct PythonFields<'a>(&'a Map<String, Value>);

impl<'a> PythonFields<'a> {
    fn refuse_unknown(&self) -> Result<(), EnvError> {
        // The planner uses the declared GPU memory.
        let known =
            |key: &str| PYTHON.contains(&key) || ARENAS.contains(&key) || key == DECLARED_MEMORY;
        match self.0.iter().find(|(key, _)| !known(key)) {
            Some((key, value)) => Err(refuse(key, value, &unknown(key, PYTHON))),
            None => Ok(()),
        }
    }

    fn get(&self, field: &str) -> Option<&'a Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        field: &str,
        wanted: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, EnvError> {
        self.get(field)
            .map(|value| convert(value).ok_or_else(|| refuse(field, value, wanted)))
            .transpose()
    }

    fn string(&self, field: &str) -> Result<Option<String>, EnvError> {
        self.read(field, "expected a string", |value| {
            value.as_str().map(str::to_owned)
        })
    }

    fn strings(&self, field: &str) -> Result<Vec<String>, EnvError> {
        let read = self.read(
            field,
            "expected a string or a list of strings",
            |value| match value {
                Value::String(text) => Some(vec![text.clone()]),
                Value::Array(items) => items
                    .iter()
                    .map(|item| item.as_str().map(str::to_owned))
                    .collect(),
                _ => None,
            },
        );
        Ok(read?.unwrap_or_default())
    }

    fn positive(&self, field: &str) -> Result<Option<u32>, EnvError> {
        let convert = |value: &Value| {
            value
                .as_u64()
                .and_then(|number| u32::try_from(number).ok())
                .filter(|&n| n > 0)
        };
        self.read(field, "expected a whole number above 0", convert)
    }

    fn boolean(&self, field: &str) -> Result<Option<bool>, EnvError> {
        self.read(field, "expected true or false", Value::as_bool)
    }

    fn object(&self, field: &str) -> Result<Map<String, Value>, EnvError> {
        let read = self.read(field, "expected an object", |value| {
            value.as_object().cloned()
        });
        Ok(read?.unwrap_or_default())
    }

    fn variables(&self, field: &str) -> Result<Vec<Variable>, EnvError> {
        let read = self.object(field)?.into_iter().map(|(name, value)| {
            read_variable(&name, &value)
                .map_err(|reason| refuse(&format!("{field}.{name}"), &value, &reason.to_string()))
        });
        read.collect()
    }

    fn start_method(&self, field: &str) -> Result<StartMethod, EnvError> {
        let convert = |value: &Value| match value.as_str()? {
            "forkserver" => Some(StartMethod::ForkServer),
            "spawn" => Some(StartMethod::Spawn),
            _ => None,
        };
        let read = self.read(field, "expected `forkserver` or `spawn`", convert)?;
        Ok(read.unwrap_or(StartMethod::ForkServer))
    }

    fn display(&self, field: &str) -> Result<DisplayChoice, EnvError> {
        let read = self.read(
            field,
            "expected `auto`, `none` or a display, for example `:1`",
            |value| match value.as_str()? {
                "auto" => Some(DisplayChoice::Own),
                "none" => Some(DisplayChoice::Inherited),
                name if name.contains(':') => Some(DisplayChoice::Named(name.to_owned())),
                _ => None,
            },
        );
        Ok(read?.unwrap_or(DisplayChoice::Inherited))
    }
}

#[cfg(test)]
mod tests;
