//! Reads a GPU's utilization and memory from NVML, NVIDIA's management library, which comes with
//! the driver and is loaded at run time.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// One GPU, identified by its UUID: NVML counts all GPUs of the machine, CUDA only the visible
/// ones.
pub struct Gauge {
    nvml: Nvml,
    uuid: String,
}

impl Gauge {
    /// Opens the GPU with the UUID `GPU-…`.
    ///
    /// # Errors
    /// Returns an error if the library is missing, the driver does not answer, or the driver does
    /// not know the GPU (a MIG instance).
    pub fn open(library: impl AsRef<OsStr>, uuid: &str) -> Result<Self, NvmlError> {
        let nvml = Nvml::builder().lib_path(library.as_ref()).init()?;
        nvml.device_by_uuid(uuid)?;
        Ok(Self {
            nvml,
            uuid: uuid.to_owned(),
        })
    }

    /// Returns the share of the last sample period, 1/6 s to 1 s, in which a kernel ran; `None` if
    /// the driver does not report it.
    pub fn busy(&self) -> Option<f64> {
        let rates = self.device()?.utilization_rates().ok()?;
        Some(f64::from(rates.gpu) / 100.0)
    }

    /// Returns the bytes of GPU memory in use by any process.
    pub fn used_bytes(&self) -> Option<u64> {
        let memory = self.device()?.memory_info().ok()?;
        Some(memory.total.saturating_sub(memory.free))
    }

    /// Returns the bytes of each process, summed over all GPUs of the machine, because environments
    /// may use other GPUs than the policy. In most containers the driver reports nothing, or PIDs
    /// of the host.
    pub fn by_process(&self) -> BTreeMap<u32, u64> {
        let mut all = BTreeMap::new();
        for index in 0..self.nvml.device_count().unwrap_or(0) {
            let device = self.nvml.device_by_index(index);
            let processes = device.map(|device| on(&device)).unwrap_or_default();
            for (pid, bytes) in processes {
                *all.entry(pid).or_default() += bytes;
            }
        }
        all
    }

    fn device(&self) -> Option<Device<'_>> {
        self.nvml.device_by_uuid(self.uuid.as_str()).ok()
    }
}

/// Returns the bytes of each process on one GPU. A process that computes and renders is in both
/// lists with the same number.
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
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::process::Command;

    use crate::device::gpu;

    /// UUID of the second GPU in `tests/fixtures/nvml.c`.
    const UUID: &str = "GPU-00000000-0000-0000-0000-000000000001";

    /// Builds a library that answers like NVML, with made-up numbers.
    fn library(folder: &tempfile::TempDir) -> PathBuf {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/nvml.c");
        let path = folder.path().join(gpu::NVML);
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&path)
            .arg(source)
            .status()
            .unwrap();
        assert!(made.success());
        path
    }

    #[test]
    fn a_gpu_is_found_by_its_uuid_and_tells_of_itself() {
        let folder = tempfile::tempdir().unwrap();
        let gauge = Gauge::open(library(&folder), UUID).unwrap();
        assert_eq!(gpu::number_in(&gauge.nvml, UUID), Some(1));
        assert_eq!(
            (gauge.busy(), gauge.used_bytes()),
            (Some(0.37), Some(3 << 30))
        );
        // 2 GiB on one GPU and 1 GiB on the other, each in both lists, and a process whose memory
        // is not reported.
        assert_eq!(
            gauge.by_process(),
            BTreeMap::from([(std::process::id(), 3 << 30)])
        );
    }

    #[test]
    fn without_library_or_gpu_there_is_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Gauge::open(folder.path().join("none.so"), UUID).is_err());
        assert!(Gauge::open(library(&folder), "GPU-another").is_err());
        assert!(Gauge::open(library(&folder), "MIG-\0").is_err());
    }
}
