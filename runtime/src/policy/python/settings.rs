//! The settings of a Python policy.

use std::path::PathBuf;

use jobs::policies::{self, PolicyProcess, Python};
use jobs::settings::kinds::PyName;
use serde_json::{Map, Value};

use crate::policy::{PolicyError, argument};
use crate::python::{Module, Variable, find_interpreter, read_variable};

/// The checked settings of a job's policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PythonPolicySettings {
    /// What messages call the policy.
    pub(in crate::policy) name: String,
    /// `file.py:factory` or `package.module:factory`.
    pub(in crate::policy) policy: PyName,
    /// The module of ours that has the factory, if it is ours.
    pub(in crate::policy) module: Option<Module>,
    /// The interpreter.
    pub(in crate::policy) python: PathBuf,
    /// Environment variables of the worker.
    pub(in crate::policy) variables: Vec<Variable>,
    /// What the job says of the process, with its time limits.
    pub(in crate::policy) process: PolicyProcess,
    /// Keyword arguments of the factory.
    pub(in crate::policy) kwargs: Map<String, Value>,
    /// What the user is told before the first episode.
    pub(in crate::policy) notes: Vec<String>,
    /// The factory's seed.
    pub(in crate::policy) seed: u64,
    /// Number of actions of a chunk that are executed.
    pub(in crate::policy) chunk_length: Option<usize>,
}

impl PythonPolicySettings {
    /// Reads the settings, and looks for file and interpreter.
    ///
    /// # Errors
    /// Returns an error with the name of the field, and if the policy's file is not there.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let given: Python = policies::read(config)?;
        if let Some(path) = given.policy.file().filter(|path| !path.is_file()) {
            let wanted = "there is no such file; it is looked for from the working directory";
            return Err(PolicyError::file(path, wanted));
        }
        Ok(Self {
            kwargs: given.policy_kwargs.unwrap_or_default(),
            seed: given.seed,
            chunk_length: given.action_chunk_length.map(usize::from),
            ..Self::of_process(given.policy, given.process)?
        })
    }

    /// Returns the settings of a worker without what is the policy's own, and looks for the
    /// interpreter.
    ///
    /// # Errors
    /// Returns an error with the name of the field.
    pub(in crate::policy) fn of_process(
        policy: PyName,
        process: PolicyProcess,
    ) -> Result<Self, PolicyError> {
        let python = process.python.as_ref();
        let python = python.map_or("python3".to_owned(), |path| path.display().to_string());
        let variables = process.env.iter().flatten().map(|(name, value)| {
            read_variable(name, value)
                .map_err(|err| refusal(&format!("env.{name}"), &value.to_string(), err))
        });
        Ok(Self {
            name: policy.to_string(),
            policy,
            module: None,
            python: find_interpreter(&python).map_err(|err| refusal("python", &python, err))?,
            variables: variables.collect::<Result<_, _>>()?,
            process,
            kwargs: Map::new(),
            notes: Vec::new(),
            seed: 0,
            chunk_length: None,
        })
    }
}

fn refusal(field: &str, found: &str, wanted: &str) -> PolicyError {
    argument(field, &format!("`{found}`"), wanted)
}
