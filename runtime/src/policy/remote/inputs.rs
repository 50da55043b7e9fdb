//! What of an environment is sent under a key of a server: a camera, or states one after the other.
//!
//! Adapters look up the environment's names here, and settings such as `observation_mapping` are
//! read here, so that all servers refuse a mismatch in the same words.

use serde_json::Value;

use crate::env::{EnvSpec, Frame, Observation};
use crate::policy::{InferenceError, PolicyError, argument};

/// The source of one of the server's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputSource {
    /// The image of this camera.
    Camera(String),
    /// These state vectors, one after the other.
    States(Vec<String>),
}

/// The cameras and states of an environment, for the policy that needs them.
#[derive(Clone, Copy, Debug)]
pub struct EnvInputs<'a> {
    /// Type of the policy, for errors.
    pub policy: &'static str,
    /// The environment.
    pub env: &'a EnvSpec,
}

impl EnvInputs<'_> {
    /// Returns whether the environment has this camera.
    pub fn has_camera(&self, name: &str) -> bool {
        self.env.cameras.iter().any(|camera| camera.name == name)
    }

    /// Returns the number of values of a state, if the environment has it.
    pub fn length(&self, name: &str) -> Option<usize> {
        let mut states = self.env.state.iter();
        states
            .find(|(other, _)| other == name)
            .map(|(_, length)| *length)
    }

    /// Returns the number of values of several states together, if the environment has them all.
    pub fn length_of_all(&self, names: &[&str]) -> Option<usize> {
        names.iter().map(|name| self.length(name)).sum()
    }

    /// Reads the entry of `observation_mapping` for a key: a camera, a state, or a list of states.
    ///
    /// # Errors
    /// Returns [`PolicyError::Setting`] for anything else, and [`PolicyError::Mismatch`] for a name
    /// that the environment does not have.
    pub fn read(&self, key: &str, given: &Value) -> Result<InputSource, PolicyError> {
        let names: Option<Vec<&str>> = match given {
            Value::String(name) => Some(vec![name]),
            Value::Array(names) => names.iter().map(Value::as_str).collect(),
            _ => None,
        };
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            let field = format!("observation_mapping.{key}");
            return Err(argument(
                &field,
                &given.to_string(),
                "expected a camera, a state or a list of states",
            ));
        };
        if let ([name], true) = (&names[..], given.is_string())
            && self.has_camera(name)
        {
            return Ok(InputSource::Camera((*name).to_owned()));
        }
        match names.iter().find(|name| self.length(name).is_none()) {
            None => Ok(states(&names)),
            Some(name) => Err(self.lacks(format!("{name} for {key}"))),
        }
    }

    /// Returns the error for an input that the environment does not have.
    pub fn lacks(&self, wanted: String) -> PolicyError {
        let cameras: Vec<&str> = self
            .env
            .cameras
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        let states: Vec<String> = self
            .env
            .state
            .iter()
            .map(|(name, length)| format!("{name} [{length}]"))
            .collect();
        let found = format!(
            "cameras {}; states {}",
            cameras.join(", "),
            states.join(", ")
        );
        self.mismatch(wanted, found)
    }

    /// Returns an error with what the policy needs and what the environment has instead.
    pub fn mismatch(&self, wanted: String, found: String) -> PolicyError {
        PolicyError::Mismatch {
            policy: self.policy,
            env: self.env.name.clone(),
            wanted,
            found,
        }
    }
}

/// Returns the source that consists of these states.
pub fn states(names: &[&str]) -> InputSource {
    InputSource::States(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Returns the values of several states, one after the other.
///
/// # Errors
/// Returns [`PolicyError::Inference`] if the observation lacks one.
pub fn numbers(names: &[String], observation: &Observation) -> Result<Vec<f32>, PolicyError> {
    let mut numbers = Vec::new();
    for name in names {
        let values = observation.state.get(name);
        numbers.extend(values.ok_or_else(|| InferenceError::no_state(name))?);
    }
    Ok(numbers)
}

/// Returns the image of a camera.
///
/// # Errors
/// Returns [`PolicyError::Inference`] if the observation lacks it.
pub fn frame<'a>(camera: &str, observation: &'a Observation) -> Result<&'a Frame, PolicyError> {
    let frame = observation.video.get(camera);
    Ok(frame.ok_or_else(|| InferenceError::no_picture(camera))?)
}

/// Returns the instruction of an observation, or that of the settings if it has none.
///
/// # Errors
/// Returns [`PolicyError::Inference`] if neither is there.
pub fn instruction<'a>(
    observation: &'a Observation,
    fallback: Option<&'a str>,
) -> Result<&'a str, PolicyError> {
    let own = Some(&*observation.language).filter(|words| !words.is_empty());
    Ok(own.or(fallback).ok_or(InferenceError::NoInstruction)?)
}
