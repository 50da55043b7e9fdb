//! Queries the memory of GPUs from NVIDIA's management library (NVML), which is part of the driver
//! and is loaded only when needed.

use std::ffi::OsStr;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The library's name with its version: the name without it belongs to the development files, which
/// are often not installed.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// The memory of a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuMemory {
    /// Total memory.
    pub total: u64,
    /// Memory that is not free: used by any process, or reserved by the driver.
    pub used: u64,
}

/// Returns the memory of every GPU in the order of bus addresses, which is that of
/// [`crate::node::Node::gpus`]. Empty if the library is missing or returns an error.
pub fn memory() -> Vec<GpuMemory> {
    memory_by(LIBRARY).unwrap_or_default()
}

fn memory_by(library: impl AsRef<OsStr>) -> Result<Vec<GpuMemory>, NvmlError> {
    let nvml = Nvml::builder().lib_path(library.as_ref()).init()?;
    let of = |index| {
        let found = nvml.device_by_index(index)?.memory_info()?;
        Ok(GpuMemory {
            total: found.total,
            used: found.total.saturating_sub(found.free),
        })
    };
    (0..nvml.device_count()?).map(of).collect()
}

/// Returns the compute capability of every GPU, major and minor number together (90 for an H200).
/// Empty if the library is missing or returns an error.
pub fn compute_capabilities() -> Vec<u32> {
    let capabilities = || -> Result<Vec<u32>, NvmlError> {
        let nvml = Nvml::builder().lib_path(LIBRARY.as_ref()).init()?;
        let of = |index| {
            let found = nvml.device_by_index(index)?.cuda_compute_capability()?;
            Ok(u32::try_from(found.major * 10 + found.minor).unwrap_or(0))
        };
        (0..nvml.device_count()?).map(of).collect()
    };
    capabilities().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_gpu_has_some_memory_and_uses_no_more_than_that() {
        // Without a GPU or the library nothing is known, and nothing fails.
        assert!(
            memory()
                .iter()
                .all(|gpu| gpu.total > 0 && gpu.used <= gpu.total)
        );
    }

    #[test]
    fn what_the_driver_keeps_is_not_free() {
        let folder = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/nvml.c");
        let library = folder.path().join(LIBRARY);
        assert!(
            Command::new("cc")
                .args(["-shared", "-fPIC", "-o"])
                .arg(&library)
                .arg(source)
                .status()
                .unwrap()
                .success()
        );
        let gib = |total: u64, used: u64| GpuMemory {
            total: total << 30,
            used: used << 30,
        };
        assert_eq!(memory_by(&library).unwrap(), [gib(4, 3), gib(8, 3)]);
        assert!(memory_by(folder.path().join("none.so")).is_err());
    }
}
