//! Asks NVIDIA's management library (NVML) about the GPUs. It is part of the driver and is loaded
//! only when needed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::mpsc::{self, Receiver};

use nvml_wrapper::enum_wrappers::device::ComputeMode;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// The library's name with its version: the name without it belongs to the development files, which
/// are often not installed.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// What NVML knows about the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvmlMachine {
    /// Version of the driver, as `580.65.06`.
    pub driver: String,
    /// Newest CUDA that the driver supports, as `13.0`, if it tells.
    pub cuda: Option<String>,
    /// The GPUs in the order of bus addresses, which is that of [`crate::node::Node::gpus`].
    pub gpus: Vec<NvmlGpu>,
}

/// What NVML knows about a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvmlGpu {
    /// Product name, as `NVIDIA H200`; empty if the driver does not tell.
    pub name: String,
    /// Its memory.
    pub memory: GpuMemory,
    /// Whether only one process, or none, may use it (compute mode).
    pub is_exclusive: bool,
    /// Its compute capability, major and minor number together (90 for an H200); 0 if the driver
    /// does not tell.
    pub capability: u32,
    /// Percent of the last moments (1/6 s to 1 s) in which a kernel ran; `None` if the driver does
    /// not tell.
    pub busy: Option<u32>,
    /// Bytes of each process; `None` if the driver does not tell. In most containers there are no
    /// processes, or they have numbers of the host.
    pub processes: BTreeMap<u32, Option<u64>>,
}

/// The memory of a GPU, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuMemory {
    /// Total memory.
    pub total: u64,
    /// Memory that is not free: used by any process, or reserved by the driver.
    pub used: u64,
}

/// Returns what NVML knows.
///
/// # Errors
/// Returns the reason in words if the library is missing or returns an error.
pub fn machine() -> Result<NvmlMachine, String> {
    machine_by(LIBRARY, false).map_err(|err| err.to_string())
}

/// Returns the memory of every GPU. Empty if the library is missing or returns an error.
pub fn memory() -> Vec<GpuMemory> {
    let gpus = machine().unwrap_or_default().gpus;
    gpus.into_iter().map(|gpu| gpu.memory).collect()
}

/// Returns the compute capability of every GPU. Empty if the library is missing or returns an
/// error, or if the driver does not tell one of them.
pub fn compute_capabilities() -> Vec<u32> {
    let gpus = machine().unwrap_or_default().gpus;
    let all: Vec<_> = gpus.into_iter().map(|gpu| gpu.capability).collect();
    if all.contains(&0) { Vec::new() } else { all }
}

/// Asks the driver; about the use of the GPUs only `with_use`, which one that hangs may not answer.
fn machine_by(library: impl AsRef<OsStr>, with_use: bool) -> Result<NvmlMachine, NvmlError> {
    let nvml = Nvml::builder().lib_path(library.as_ref()).init()?;
    let cuda = nvml.sys_cuda_driver_version().ok();
    let gpus = (0..nvml.device_count()?).map(|index| gpu(&nvml.device_by_index(index)?, with_use));
    Ok(NvmlMachine {
        driver: nvml.sys_driver_version()?,
        cuda: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
        gpus: gpus.collect::<Result<_, NvmlError>>()?,
    })
}

/// Asks about a GPU. Old drivers do not tell all of it.
fn gpu(device: &Device<'_>, with_use: bool) -> Result<NvmlGpu, NvmlError> {
    let memory = device.memory_info()?;
    let mode = device.compute_mode().unwrap_or(ComputeMode::Default);
    let capability = device.cuda_compute_capability().ok();
    let capability = capability.map(|found| found.major * 10 + found.minor);
    let mut gpu = NvmlGpu {
        name: device.name().unwrap_or_default(),
        memory: GpuMemory {
            total: memory.total,
            used: memory.total.saturating_sub(memory.free),
        },
        is_exclusive: mode != ComputeMode::Default,
        capability: capability
            .and_then(|found| u32::try_from(found).ok())
            .unwrap_or(0),
        ..NvmlGpu::default()
    };
    if with_use {
        gpu.busy = device.utilization_rates().ok().map(|rates| rates.gpu);
        gpu.processes = processes(device);
    }
    Ok(gpu)
}

/// Returns the processes on a GPU. One that computes and renders is in both lists with the same
/// number.
fn processes(device: &Device<'_>) -> BTreeMap<u32, Option<u64>> {
    let computing = device.running_compute_processes().unwrap_or_default();
    let drawing = device.running_graphics_processes().unwrap_or_default();
    let mut most: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for process in computing.into_iter().chain(drawing) {
        let bytes = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        let known = most.entry(process.pid).or_default();
        *known = bytes.max(*known);
    }
    most
}

/// Asks in a thread for the use of every GPU. The thread is left behind if the driver hangs;
/// without NVML there is none.
pub fn ask() -> Receiver<Vec<NvmlGpu>> {
    ask_with(|| machine_by(LIBRARY, true).unwrap_or_default().gpus)
}

fn ask_with(look: impl FnOnce() -> Vec<NvmlGpu> + Send + 'static) -> Receiver<Vec<NvmlGpu>> {
    let (tell, answer) = mpsc::channel();
    let work = move || {
        // Nobody may be waiting any more.
        let _ = tell.send(look());
    };
    // Without a thread there is no answer.
    let _ = std::thread::Builder::new()
        .name("nvml".to_owned())
        .spawn(work);
    answer
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tests::nvml;

    #[test]
    fn everything_is_as_the_driver_tells() {
        let folder = tempfile::tempdir().expect("a folder");
        let library = nvml(folder.path());
        let gib = |count: u64| count << 30;
        let of = |own: u64, busy, total| NvmlGpu {
            memory: GpuMemory {
                total: gib(total),
                // What the driver keeps is not free.
                used: gib(3),
            },
            busy,
            processes: [(1, None), (std::process::id(), Some(gib(own)))].into(),
            ..NvmlGpu::default()
        };
        let machine = NvmlMachine {
            driver: "580.0".to_owned(),
            cuda: None,
            gpus: vec![of(1, None, 4), of(2, Some(37), 8)],
        };
        assert_eq!(machine_by(&library, true).expect("it answers"), machine);
        let without_use = machine_by(&library, false).expect("it answers");
        assert_eq!(
            (
                without_use.gpus[1].busy,
                without_use.gpus[1].processes.len()
            ),
            (None, 0)
        );
        assert!(machine_by("/nowhere/none.so", true).is_err());
    }

    #[test]
    fn a_driver_that_hangs_is_not_waited_for() {
        let (_keep, hangs) = mpsc::channel::<()>();
        let question = ask_with(move || {
            let _ = hangs.recv();
            Vec::new()
        });
        assert!(question.recv_timeout(Duration::from_millis(10)).is_err());
    }
}
