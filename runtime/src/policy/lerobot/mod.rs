//! LeRobot's policies, by its own classes and processors in the user's interpreter.
//!
//! ```text
//! settings, config.json ─► which camera and states fill which input ─► PythonPolicy ─► rrun_lerobot.py
//! EnvSpec ───────────────┘
//! ```
//! The worker is that of a policy in Python (`crate::policy::python`), with a factory of ours:
//! `rrun_lerobot.py`, which loads the checkpoint and infers.

use std::path::PathBuf;

use jobs::hub;
use jobs::policies::lerobot::{CheckpointFeature, FeatureKind, FeatureMapping, LerobotCheckpoint};
use jobs::policies::{self, Lerobot, PolicyType};
use jobs::settings::kinds::PyName;
use jobs::wiring::Sides;
use serde_json::{Map, Value, json};

use crate::env::EnvSpec;
use crate::policy::PolicyError;
use crate::policy::python::PythonPolicySettings;
use crate::python::{Module, set_default};

#[cfg(test)]
mod tests;

/// The factory of the policy, and the module that has it.
const FACTORY: &str = "LerobotPolicy";
const MODULE: Module = ("rrun_lerobot", include_str!("worker/rrun_lerobot.py"));

/// The checked settings of a job's LeRobot policy.
#[derive(Clone, Debug, PartialEq)]
pub struct LerobotSettings {
    /// Folder of the checkpoint.
    pub(in crate::policy) model_path: PathBuf,
    /// What the checkpoint says about itself.
    checkpoint: LerobotCheckpoint,
    /// Cameras and states for its inputs.
    mapping: FeatureMapping,
    /// Settings of the worker, without the arguments that depend on the environment.
    pub(in crate::policy) worker: PythonPolicySettings,
}

impl LerobotSettings {
    /// Reads the settings, and the configuration of the checkpoint.
    ///
    /// # Errors
    /// Returns an error with the name of the field or of the file.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let given: Lerobot = policies::read(config)?;
        let factory = PyName::InModule {
            module: MODULE.0.to_owned(),
            factory: FACTORY.to_owned(),
        };
        let mapping = FeatureMapping::read(&given.mapping.unwrap_or_default())?;
        let model_path = hub::checkpoint(&given.model_path, |name| std::env::var_os(name))?;
        let checkpoint = LerobotCheckpoint::read(&model_path)?;
        let chunk_length = given.action_chunk_length.map(usize::from);
        checkpoint.check_chunk_length(chunk_length)?;
        let mut worker = PythonPolicySettings {
            name: given.model_path.display().to_string(),
            module: Some(MODULE),
            seed: given.seed,
            chunk_length,
            kwargs: arguments([
                ("model_path", json!(model_path)),
                ("actions", json!(chunk_length)),
                ("task", json!(given.task)),
                (
                    "config_overrides",
                    given.config_overrides.unwrap_or_default().into(),
                ),
            ]),
            ..PythonPolicySettings::of_process(factory, given.process)?
        };
        // Nothing is downloaded while episodes wait for it, unless the job or the user wants that.
        set_default(&mut worker.variables, "HF_HUB_OFFLINE", "1");
        Ok(Self {
            model_path,
            checkpoint,
            mapping,
            worker,
        })
    }

    /// Returns the settings of the worker in an environment.
    ///
    /// # Errors
    /// Returns an error for an environment that lacks what the checkpoint reads, or has other
    /// actions.
    pub(in crate::policy) fn for_env(
        &self,
        env: &EnvSpec,
    ) -> Result<PythonPolicySettings, PolicyError> {
        let names = env.cameras.iter().map(|camera| camera.name.as_str());
        let names: Vec<&str> = names.collect();
        let (checkpoint, mapping) = (&self.checkpoint, &self.mapping);
        let cameras = mapping.cameras(checkpoint, &env.name, &names)?;
        let states = mapping.states(checkpoint, &env.name, &env.state)?;
        if let Some(size) = checkpoint.action_size() {
            let sides = Sides::new(PolicyType::Lerobot, env);
            sides.action(size, "")?;
        }
        let mut worker = self.worker.clone();
        worker.notes = notes(checkpoint, env, &cameras);
        worker.kwargs.extend(arguments([
            ("cameras", json!(cameras)),
            ("states", json!(states)),
        ]));
        Ok(worker)
    }
}

fn arguments<const N: usize>(values: [(&str, Value); N]) -> Map<String, Value> {
    let named = values.map(|(name, value)| (name.to_owned(), value));
    named.into_iter().collect()
}

/// Returns what the user should know: pictures of another size than the checkpoint was trained with.
fn notes(
    checkpoint: &LerobotCheckpoint,
    env: &EnvSpec,
    cameras: &[(String, Option<String>)],
) -> Vec<String> {
    let note = |(input, feature): (&str, &CheckpointFeature)| {
        let (_, name) = cameras.iter().find(|(mapped, _)| *mapped == input)?;
        let name = name.as_ref()?;
        let camera = env.camera(name)?;
        let [_, height, width] = feature.shape[..] else {
            return None;
        };
        let is_same = (height, width) == (camera.height as usize, camera.width as usize);
        (!is_same).then(|| {
            format!(
                "camera `{name}` has {} x {} pixels, and `{input}` of the checkpoint {height} x \
                 {width}",
                camera.height, camera.width
            )
        })
    };
    let inputs = checkpoint.inputs_of(FeatureKind::Picture);
    inputs.filter_map(note).collect()
}
