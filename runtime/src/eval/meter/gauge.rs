//! What the driver tells of a GPU: NVIDIA's management library, which comes with it and is loaded when it is asked.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// The name without a version belongs to the development files, which a machine that only runs things has not.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// One GPU, by its UUID: the driver counts all of the machine, CUDA those that are visible.
pub struct Gauge {
    nvml: Nvml,
    uuid: String,
}

impl Gauge {
    /// Of the GPU `GPU-…`.
    ///
    /// # Errors
    /// A library that is not there, a driver that does not answer, and a GPU that it does not know (part of one: MIG).
    pub fn open(library: impl AsRef<OsStr>, uuid: &str) -> Result<Self, NvmlError> {
        let nvml = Nvml::builder().lib_path(library.as_ref()).init()?;
        nvml.device_by_uuid(uuid)?;
        Ok(Self { nvml, uuid: uuid.to_owned() })
    }

    /// Share of its last sample, 1/6 s to 1 s, in which any kernel ran; `None` where it does not tell.
    pub fn busy(&self) -> Option<f64> {
        let rates = self.device()?.utilization_rates().ok()?;
        Some(f64::from(rates.gpu) / 100.0)
    }

    /// Bytes that are not free, whoever has them.
    pub fn used_bytes(&self) -> Option<u64> {
        let memory = self.device()?.memory_info().ok()?;
        Some(memory.total.saturating_sub(memory.free))
    }

    /// Bytes by process, of all GPUs of the machine together: environments may be on others than the policy. In most
    /// containers the driver tells nothing, or numbers that processes have outside.
    pub fn by_process(&self) -> BTreeMap<u32, u64> {
        let mut all = BTreeMap::new();
        for index in 0..self.nvml.device_count().unwrap_or(0) {
            for (pid, bytes) in self.nvml.device_by_index(index).map(|device| on(&device)).unwrap_or_default() {
                *all.entry(pid).or_default() += bytes;
            }
        }
        all
    }

    fn device(&self) -> Option<Device<'_>> {
        self.nvml.device_by_uuid(self.uuid.as_str()).ok()
    }
}

/// Bytes by process on one GPU. One that computes and draws is in both lists with the same number.
fn on(device: &Device) -> BTreeMap<u32, u64> {
    let computing = device.running_compute_processes().unwrap_or_default();
    let drawing = device.running_graphics_processes().unwrap_or_default();
    let mut most: BTreeMap<u32, u64> = BTreeMap::new();
    for process in computing.into_iter().chain(drawing) {
        if let UsedGpuMemory::Used(bytes) = process.used_gpu_memory {
            let known = most.entry(process.pid).or_default();
            *known = bytes.max(*known);
        }
    }
    most
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::process::Command;

    /// As `tests/fixtures/nvml.c` names its second GPU.
    pub const UUID: &str = "GPU-00000000-0000-0000-0000-000000000001";

    /// A library that answers as the driver's does, with numbers of its own.
    pub fn library(folder: &tempfile::TempDir) -> PathBuf {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/nvml.c");
        let path = folder.path().join(LIBRARY);
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&path).arg(source).status().unwrap();
        assert!(made.success());
        path
    }

    #[test]
    fn a_gpu_is_found_by_its_uuid_and_tells_of_itself() {
        let folder = tempfile::tempdir().unwrap();
        let gauge = Gauge::open(library(&folder), UUID).unwrap();
        assert_eq!((gauge.busy(), gauge.used_bytes()), (Some(0.37), Some(3 << 30)));
        // 2 GiB on one GPU and 1 GiB on the other, each in both lists; and a process of which nothing is told.
        assert_eq!(gauge.by_process(), BTreeMap::from([(std::process::id(), 3 << 30)]));
    }

    #[test]
    fn without_library_or_gpu_there_is_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Gauge::open(folder.path().join("none.so"), UUID).is_err());
        assert!(Gauge::open(library(&folder), "GPU-another").is_err());
        assert!(Gauge::open(library(&folder), "MIG-\0").is_err());
    }
}
