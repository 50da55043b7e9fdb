//! Checks a checkpoint before anything starts, as far as the launcher knows it: the files of a
//! LeRobot policy, and what a compiled package says about itself and this machine; of both, the
//! cameras, if those of the environment are known without starting it.

use std::path::{Path, PathBuf};

use jobs::exported::{Input, Machine, Package};
use jobs::hub;
use jobs::job::Job;
use jobs::policies::lerobot::{FeatureMapping, LerobotCheckpoint};
use jobs::refusal::Refusal;
use jobs::simulators::Simulator;
use serde_json::Value;

use crate::cli::Environment;
use crate::node::nvml;

/// Checks the checkpoint of a job whose policy is a LeRobot policy and whose `model_path` exists.
///
/// # Errors
/// Returns what a rank would refuse.
pub(super) fn check_lerobot(job: &Job, env: &Environment) -> Result<(), Refusal> {
    let config = &job.policy_config;
    let Some(folder) = folder(config.get("model_path"), env) else {
        return Ok(());
    };
    let checkpoint = LerobotCheckpoint::read(&folder)?;
    let length = config
        .get("action_chunk_length")
        .and_then(Value::as_u64)
        .and_then(|length| usize::try_from(length).ok());
    checkpoint.check_chunk_length(length)?;
    let given = config.get("mapping").and_then(Value::as_object);
    let mapping = given.map_or_else(|| Ok(FeatureMapping::default()), FeatureMapping::read)?;
    let has_cameras = job.enable_cameras != Some(false);
    match Simulator::of(&job.environment).filter(|_| has_cameras) {
        Some(simulator) => mapping
            .cameras(&checkpoint, &job.environment, simulator.row().cameras)
            .map(drop),
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

/// Checks the package at `path` for a job on a node with `gpus` visible GPUs. Ranks check the rest:
/// their own device, and what environments in Python show.
pub(super) fn check_package(job: &Job, path: &Path, gpus: usize) -> Result<(), Refusal> {
    let package = Package::read(path)?;
    package.check(&Machine::here())?;
    check_gpus(&package, gpus, &nvml::compute_capabilities())?;
    check_cameras(job, &package)
}

/// Refuses a package for GPUs if there are none, or none for which it was compiled.
fn check_gpus(package: &Package, gpus: usize, capabilities: &[u32]) -> Result<(), Refusal> {
    if !package.compiled_for.is_cuda() {
        return Ok(());
    }
    if gpus == 0 {
        return Err(package.refuse(
            "it was compiled for a GPU, but no GPU is visible here; export it with `--device cpu`",
        ));
    }
    let fits = package.compiled_for.check_gpus(0, capabilities);
    fits.map_err(|refusal| package.refuse(refusal))
}

/// Refuses a camera that a simulator of ours certainly does not have.
fn check_cameras(job: &Job, package: &Package) -> Result<(), Refusal> {
    let Some(simulator) = Simulator::of(&job.environment) else {
        return Ok(());
    };
    let known = simulator.row().cameras;
    let renamed = job.policy_config.get("cameras");
    let inputs = package.description.inputs.iter();
    let names = inputs.flat_map(|input| match input {
        Input::Cameras { names, .. } => names.as_slice(),
        _ => &[],
    });
    for name in names {
        let other = renamed.and_then(|names| names.get(name));
        let camera = other.and_then(Value::as_str).unwrap_or(name);
        if !known.contains(&camera) {
            return Err(Refusal::new(format_args!(
                "`{}` reads the camera `{camera}`, but `{}` has {}; `policy_config_dict.cameras` \
                 gives cameras other names",
                package.path().display(),
                job.environment,
                known.join(", ")
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobs::exported::TorchKeys;
    use jobs::exported::testing::{DESCRIPTION, keys, package};

    fn written(folder: &Path, keys: &TorchKeys, description: &str) -> Package {
        let path = folder.join("policy.pt2");
        std::fs::write(&path, package(keys, description)).unwrap();
        Package::read(&path).unwrap()
    }

    #[test]
    fn a_package_for_a_gpu_needs_one_of_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let cuda = TorchKeys {
            device: "cuda".to_owned(),
            compute_capability: Some(90),
            ..keys()
        };
        let cuda = written(folder.path(), &cuda, DESCRIPTION);
        let told = check_gpus(&cuda, 0, &[]).unwrap_err().to_string();
        assert!(
            told.contains("policy.pt2`: it was compiled for a GPU, but no GPU is"),
            "{told}"
        );
        assert_eq!(check_gpus(&cuda, 2, &[80, 90]), Ok(()));
        assert_eq!(check_gpus(&cuda, 1, &[]), Ok(()), "nothing is known");
        let text = check_gpus(&cuda, 2, &[80, 86]).unwrap_err().to_string();
        let wanted = "policy.pt2`: it was compiled for GPUs of compute capability 90, but GPU 0 has \
                      80; export it on such a GPU";
        assert!(text.ends_with(wanted), "{text}");
        let cpu = written(folder.path(), &keys(), DESCRIPTION);
        assert_eq!(check_gpus(&cpu, 0, &[]), Ok(()));
    }
}
