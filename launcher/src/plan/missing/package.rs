//! Checks a compiled package: what it says about itself, this machine, and the cameras of a
//! simulator that the launcher knows.

use std::path::Path;

use jobs::exported::{Input, Machine, Package};
use jobs::job::Job;
use jobs::refusal::Refusal;
use jobs::simulators::Simulator;
use serde_json::Value;

use crate::node::nvml;

/// Checks the package at `path` for a job on a node with `gpus` visible GPUs. Ranks check the rest:
/// their own device, and what environments in Python show.
pub(super) fn check(job: &Job, path: &Path, gpus: usize) -> Result<(), String> {
    let package = Package::read(path).map_err(|err| err.to_string())?;
    let fits = package
        .check(&Machine::here())
        .and_then(|()| check_gpus(&package, gpus, &nvml::compute_capabilities()));
    fits.map_err(|err| err.to_string())?;
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
fn check_cameras(job: &Job, package: &Package) -> Result<(), String> {
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
            return Err(format!(
                "`{}` reads the camera `{camera}`, but `{}` has {}; `policy_config_dict.cameras` \
                 gives cameras other names",
                package.path().display(),
                job.environment,
                known.join(", ")
            ));
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
