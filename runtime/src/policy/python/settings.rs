//! The settings of a Python policy.

use std::path::PathBuf;
use std::time::Duration;

use jobs::policies::{DECLARED_MEMORY, FactoryName, PolicyType, SettingError, SettingsReader};
use serde_json::{Map, Value};

use crate::env::python::args::find_interpreter;
use crate::env::python::variables::{Variable, read_variable};
use crate::policy::PolicyError;

/// Time limit of a call.
const ACT_TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit of a start.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(600);
/// How often a worker is started again.
const MAX_RESTARTS: u64 = 3;
/// Maximum bytes of `policy_kwargs`, which are sent in one packet of at most some 200 kB.
const LONGEST_KWARGS: usize = 64 << 10;

/// Name and text of a Python module.
pub(in crate::policy) type WorkerModule = (&'static str, &'static str);

/// The checked settings of a job's policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PythonPolicySettings {
    /// What messages call the policy.
    pub(in crate::policy) name: String,
    /// `file.py:factory` or `package.module:factory`.
    pub(in crate::policy) policy: String,
    /// The module of ours that has the factory, if it is ours.
    pub(in crate::policy) module: Option<WorkerModule>,
    /// The interpreter.
    pub(super) python: PathBuf,
    /// Environment variables of the worker.
    pub(in crate::policy) variables: Vec<Variable>,
    /// Keyword arguments of the factory.
    pub(in crate::policy) kwargs: Map<String, Value>,
    /// What the user is told before the first episode.
    pub(in crate::policy) notes: Vec<String>,
    /// The factory's seed.
    pub(super) seed: u64,
    /// Number of actions of a chunk that are executed.
    pub(in crate::policy) chunk_length: Option<usize>,
    /// Time limit of a call.
    pub(super) act_timeout: Duration,
    /// Time limit of a start.
    pub(super) startup_timeout: Duration,
    /// How often a worker is started again.
    pub(super) max_restarts: u64,
}

impl PythonPolicySettings {
    /// Reads the settings, and looks for file and interpreter.
    ///
    /// # Errors
    /// Returns [`PolicyError::Setting`] with the name of the field, and [`PolicyError::File`] if
    /// the policy's file is not there.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let mut fields = SettingsReader::new(PolicyType::Python, config);
        let policy = fields.string("policy")?;
        let policy = policy.ok_or_else(|| fields.missing("policy"))?;
        let mut settings = Self::of_worker(&mut fields, policy)?;
        settings.kwargs = fields.map("policy_kwargs")?.unwrap_or_default();
        fields.finish()?;
        settings.check()?;
        Ok(settings)
    }

    /// Reads what every policy in a worker has, and looks for the interpreter. There are no keyword
    /// arguments yet.
    ///
    /// # Errors
    /// Returns a [`SettingError`] with the name of the field.
    pub(in crate::policy) fn of_worker(
        fields: &mut SettingsReader,
        policy: String,
    ) -> Result<Self, SettingError> {
        let python = fields.path("python")?;
        let python = python.map_or("python3".to_owned(), |path| path.display().to_string());
        let variables = fields.map("env")?.unwrap_or_default();
        // Only the memory planner uses it.
        fields.number(DECLARED_MEMORY)?;
        Ok(Self {
            name: policy.clone(),
            policy,
            module: None,
            python: find_interpreter(&python)
                .map_err(|err| refusal("python", &python, &err.to_string()))?,
            variables: variables
                .iter()
                .map(|(name, value)| {
                    let field = format!("env.{name}");
                    read_variable(name, value)
                        .map_err(|err| refusal(&field, &value.to_string(), &err.to_string()))
                })
                .collect::<Result<_, _>>()?,
            kwargs: Map::new(),
            notes: Vec::new(),
            seed: fields.whole("seed")?.unwrap_or(0),
            chunk_length: fields.count("action_chunk_length")?,
            act_timeout: fields.seconds("act_timeout_s")?.unwrap_or(ACT_TIMEOUT),
            startup_timeout: fields
                .seconds("startup_timeout_s")?
                .unwrap_or(STARTUP_TIMEOUT),
            max_restarts: fields.whole("max_restarts")?.unwrap_or(MAX_RESTARTS),
        })
    }

    fn check(&self) -> Result<(), PolicyError> {
        let bytes = serde_json::to_string(&self.kwargs).map_or(0, |text| text.len());
        if bytes > LONGEST_KWARGS {
            let wanted = format!("expected at most {LONGEST_KWARGS} bytes");
            return Err(refusal("policy_kwargs", &format!("{bytes} bytes"), &wanted).into());
        }
        match self.file() {
            Some(path) if !path.is_file() => Err(PolicyError::File {
                path,
                reason: "there is no such file; it is looked for from the working directory"
                    .to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the file of the policy, unless it is in a module that only the interpreter finds.
    pub(super) fn file(&self) -> Option<PathBuf> {
        match FactoryName::of(&self.policy)? {
            FactoryName::InFile { file, .. } => Some(PathBuf::from(file)),
            FactoryName::InModule { .. } => None,
        }
    }
}

fn refusal(field: &str, found: &str, wanted: &str) -> SettingError {
    SettingError::argument(field, &format!("`{found}`"), wanted)
}
