//! Parses `--nproc-per-node`: the number of ranks on this node.

use crate::cli::python::int;
use crate::node::Node;
use crate::plan::error::PlanError;

/// The kernel's own limit on process ids (`PID_MAX_LIMIT`); a larger number is a typing error.
const MOST: usize = 4_194_304;

/// Returns the number of ranks that `given` asks for on `node`; `visible_devices` is
/// `CUDA_VISIBLE_DEVICES` (`None` shows all GPUs).
///
/// # Errors
/// Returns an error if `given` is neither a positive number nor a kind of device that this node
/// has.
pub fn nproc(given: &str, node: &Node, visible_devices: Option<&str>) -> Result<usize, PlanError> {
    if let Some(found) = int(given) {
        let count = usize::try_from(found)
            .ok()
            .filter(|count| (1..=MOST).contains(count));
        return count.ok_or(PlanError::RanksRange { found, most: MOST });
    }
    let gpus = node.visible_gpus(visible_devices);
    match given {
        "cpu" => Ok(node.cpus),
        "gpu" if gpus > 0 => Ok(gpus),
        "gpu" => Err(PlanError::NoCuda),
        "xpu" => Err(PlanError::NoXpu),
        "auto" if gpus > 0 => Ok(gpus),
        "auto" => Ok(node.cpus),
        _ => Err(PlanError::RanksValue(given.to_owned())),
    }
}
