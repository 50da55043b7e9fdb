//! Parses `--nproc-per-node`: the number of ranks on this node.

use anyhow::{Context as _, bail};

use crate::cli::python::int;
use crate::node::Node;

/// The kernel's own limit on process ids (`PID_MAX_LIMIT`); a larger number is a typing error.
const MOST: usize = 4_194_304;

/// Returns the number of ranks that `given` asks for on `node`; `visible_devices` is
/// `CUDA_VISIBLE_DEVICES` (`None` shows all GPUs).
///
/// # Errors
/// Returns an error if `given` is neither a positive number nor a kind of device that this node
/// has.
pub fn nproc(given: &str, node: &Node, visible_devices: Option<&str>) -> anyhow::Result<usize> {
    if let Some(found) = int(given) {
        let count = usize::try_from(found)
            .ok()
            .filter(|count| (1..=MOST).contains(count));
        return count
            .with_context(|| format!("nproc_per_node must be between 1 and {MOST}, got {found}"));
    }
    let gpus = node.visible_gpus(visible_devices);
    match given {
        "cpu" => Ok(node.cpus),
        "gpu" if gpus > 0 => Ok(gpus),
        "gpu" => bail!("Cuda is not available."),
        "xpu" => bail!("Xpu is not available."),
        "auto" if gpus > 0 => Ok(gpus),
        "auto" => Ok(node.cpus),
        _ => bail!("Unsupported nproc_per_node value: {given}"),
    }
}
