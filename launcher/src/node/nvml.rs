//! Queries the memory of GPUs from NVIDIA's management library (NVML), which is part of the driver
//! and is loaded only when needed.

use std::ffi::OsStr;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::ComputeMode;
use nvml_wrapper::error::NvmlError;

/// The library's name with its version: the name without it belongs to the development files, which
/// are often not installed.
pub(crate) const LIBRARY: &str = "libnvidia-ml.so.1";

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

/// What NVML knows about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvmlMachine {
    /// Version of the driver, as `580.65.06`.
    pub driver: String,
    /// Newest CUDA that the driver supports, as `13.0`, if it tells.
    pub cuda: Option<String>,
    /// The GPUs in the order of bus addresses.
    pub gpus: Vec<NvmlGpu>,
}

/// What NVML knows about a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmlGpu {
    /// Product name, as `NVIDIA H200`.
    pub name: String,
    /// Its memory.
    pub memory: GpuMemory,
    /// Whether only one process, or none, may use it (compute mode).
    pub is_exclusive: bool,
}

/// Returns what NVML knows.
///
/// # Errors
/// Returns the reason in words if the library is missing or returns an error.
pub fn machine() -> Result<NvmlMachine, String> {
    machine_by(LIBRARY).map_err(|err| err.to_string())
}

fn machine_by(library: impl AsRef<OsStr>) -> Result<NvmlMachine, NvmlError> {
    let nvml = Nvml::builder().lib_path(library.as_ref()).init()?;
    let of = |index| {
        let device = nvml.device_by_index(index)?;
        let memory = device.memory_info()?;
        // Old drivers do not tell the mode.
        let mode = device.compute_mode().unwrap_or(ComputeMode::Default);
        Ok(NvmlGpu {
            name: device.name().unwrap_or_else(|_| "unnamed GPU".to_owned()),
            memory: GpuMemory {
                total: memory.total,
                used: memory.total.saturating_sub(memory.free),
            },
            is_exclusive: mode != ComputeMode::Default,
        })
    };
    let cuda = nvml.sys_cuda_driver_version().ok();
    let gpus = (0..nvml.device_count()?).map(of);
    Ok(NvmlMachine {
        driver: nvml.sys_driver_version()?,
        cuda: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
        gpus: gpus.collect::<Result<_, NvmlError>>()?,
    })
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
    use crate::tests::nvml;

    #[test]
    fn what_the_driver_keeps_is_not_free() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = nvml(folder.path());
        let gib = |total: u64, used: u64| GpuMemory {
            total: total << 30,
            used: used << 30,
        };
        assert_eq!(memory_by(&library).unwrap(), [gib(4, 3), gib(8, 3)]);
        assert!(memory_by("/nowhere/none.so").is_err());

        let machine = machine_by(&library).unwrap();
        assert_eq!(machine.driver, "580.0");
        assert_eq!(machine.cuda, None, "this library does not tell");
        let used: Vec<u64> = machine.gpus.iter().map(|gpu| gpu.memory.used).collect();
        assert_eq!(used, [3 << 30, 3 << 30]);
        assert!(machine.gpus.iter().all(|gpu| !gpu.is_exclusive));
    }
}
