//! Checks a LeRobot checkpoint before anything starts: its files, and the cameras that its inputs
//! get, where those of the environment are known without starting it.

use std::path::{Path, PathBuf};

use jobs::hub;
use jobs::job::Job;
use jobs::policies::lerobot::{FeatureMapping, LerobotCheckpoint};
use jobs::simulators::Simulator;
use serde_json::Value;

use crate::cli::Environment;

/// Checks the checkpoint of a job whose policy is a LeRobot policy and whose `model_path` exists.
///
/// # Errors
/// Returns what a rank would refuse.
pub(super) fn check(job: &Job, env: &Environment) -> Result<(), String> {
    let config = &job.policy_config;
    let Some(folder) = folder(config.get("model_path"), env) else {
        return Ok(());
    };
    let checkpoint = LerobotCheckpoint::read(&folder).map_err(|err| err.to_string())?;
    let length = config
        .get("action_chunk_length")
        .and_then(Value::as_u64)
        .and_then(|length| usize::try_from(length).ok());
    let checked = checkpoint.check_chunk_length(length);
    checked.map_err(|err| err.to_string())?;
    let given = config.get("mapping").and_then(Value::as_object);
    let mapping = given.map_or_else(|| Ok(FeatureMapping::default()), FeatureMapping::read);
    let mapping = mapping.map_err(|err| err.to_string())?;
    let has_cameras = job.enable_cameras != Some(false);
    match Simulator::of(&job.environment).filter(|_| has_cameras) {
        Some(simulator) => mapping
            .cameras(&checkpoint, &job.environment, simulator.row().cameras)
            .map(drop)
            .map_err(|err| err.to_string()),
        None => Ok(()),
    }
}

/// Returns the folder of a checkpoint, or of a downloaded model.
fn folder(given: Option<&Value>, env: &Environment) -> Option<PathBuf> {
    let given = given?.as_str()?;
    if Path::new(given).is_dir() {
        return Some(PathBuf::from(given));
    }
    hub::snapshot(given, |variable| env.get(variable).map(Into::into))
}
