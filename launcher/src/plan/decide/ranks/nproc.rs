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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeGpu;

    fn on(gpus: usize, given: &str, visible_devices: Option<&str>) -> Result<usize, PlanError> {
        let node = Node {
            cpus: 6,
            gpus: vec![NodeGpu::default(); gpus],
            ..Node::default()
        };
        nproc(given, &node, visible_devices)
    }

    #[test]
    fn a_number_is_taken_as_it_is() {
        assert_eq!(
            [on(0, "3", None), on(0, " +4 ", None), on(0, "1_0", None)],
            [Ok(3), Ok(4), Ok(10)]
        );
    }

    #[test]
    fn no_ranks_and_too_many_are_refused() {
        for (text, found) in [("0", 0), ("-1", -1), ("5000000", 5_000_000)] {
            assert_eq!(
                on(0, text, None),
                Err(PlanError::RanksRange { found, most: MOST })
            );
        }
    }

    #[test]
    fn words_count_devices() {
        assert_eq!(
            [on(4, "cpu", None), on(4, "gpu", None), on(4, "auto", None)],
            [Ok(6), Ok(4), Ok(4)]
        );
        assert_eq!(
            [
                on(4, "gpu", Some("1,3")),
                on(4, "auto", Some("")),
                on(0, "auto", None)
            ],
            [Ok(2), Ok(6), Ok(6)]
        );
    }

    #[test]
    fn devices_that_are_not_there_are_refused() {
        assert_eq!(
            on(0, "gpu", None).unwrap_err().to_string(),
            "Cuda is not available."
        );
        assert_eq!(on(4, "gpu", Some("-1")), Err(PlanError::NoCuda));
        assert_eq!(on(4, "xpu", None), Err(PlanError::NoXpu));
        assert_eq!(
            on(4, "abc", None).unwrap_err().to_string(),
            "Unsupported nproc_per_node value: abc"
        );
    }
}
