//! What the GPU of a rank is and holds, as CUDA and libtorch report it, and whether this process
//! has lost it; and where it stands among those of the machine, which are counted in two ways.
//!
//! CUDA counts the fastest GPU first, unless `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`. `nvidia-smi` and
//! simulators, which get that variable, count by address. It is the same where all GPUs are.

use std::sync::LazyLock;

use jobs::journal::RankGpu;
use jobs::refusal::Refusal;
use nvml_wrapper::Nvml;
use tch::Device;
use torchlib::cuda::{self, Cuda, DeviceMemory};
use torchlib::torch_error::{first_line, is_context_lost};

use crate::device::{Decision, DeviceRequest, VisibleDevices, resolve};
use crate::env;

/// Name of NVIDIA's management library (NVML), which comes with the driver. The name without a
/// version belongs to the development package, which a pure runtime machine does not have.
pub const NVML: &str = "libnvidia-ml.so.1";

/// Returns the CUDA devices that this process can see. Loads CUDA, if there is a driver.
///
/// # Errors
/// Returns an error if the driver does not answer.
pub fn visible() -> Result<VisibleDevices, Refusal> {
    let cuda = match cuda::load() {
        Ok(cuda) => cuda,
        Err(reason) => return Ok(Err(reason.to_string())),
    };
    Ok(match cuda.device_count().map_err(Refusal::new)? {
        0 => Err("the driver shows no device".to_owned()),
        count => Ok(count),
    })
}

/// Decides on the device of this process, and makes it CUDA's current one.
///
/// # Errors
/// As [`resolve`]; and if the driver does not answer.
pub fn decide(request: &DeviceRequest) -> Result<Decision, Refusal> {
    let decision = resolve(request, &visible()?)?;
    if let (Ok(cuda), Device::Cuda(index)) = (cuda::load(), decision.device) {
        cuda.select(index).map_err(Refusal::new)?;
    }
    Ok(decision)
}

/// Returns CUDA and the index of a device; `None` on a CPU.
fn cuda_of(device: Device) -> Option<(Cuda, usize)> {
    match device {
        Device::Cuda(index) => Some((cuda::load().ok()?, index)),
        _ => None,
    }
}

/// Returns the used and the total bytes of the device's memory; `None` on a CPU or if the driver
/// does not answer.
pub fn memory(device: Device) -> Option<(u64, u64)> {
    let (cuda, index) = cuda_of(device)?;
    let memory = cuda.memory(index).ok()?;
    let used = memory.total_bytes.saturating_sub(memory.free_bytes);
    Some((used, memory.total_bytes))
}

/// Returns the name of a device: `cpu` or `cuda:1`.
pub fn name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}

/// Returns the GPU's index, name, memory size and UUID as its driver reports them.
pub fn described(device: Device) -> Option<RankGpu> {
    let (cuda, index) = cuda_of(device)?;
    let facts = cuda.device(index).ok()?;
    Some(RankGpu {
        index,
        name: facts.name,
        bytes: facts.total_bytes,
        uuid: facts.uuid,
    })
}

/// Returns the memory with the peaks of libtorch since the last call, and resets them.
pub fn take_peak(device: Device) -> Option<DeviceMemory> {
    let (cuda, index) = cuda_of(device)?;
    let memory = cuda.memory(index).ok()?;
    // If the reset fails, the next peak covers a longer time; it is still a correct upper bound.
    cuda.reset_peak(index).ok();
    Some(memory)
}

/// Returns the bytes that libtorch has reserved from the device now.
pub fn reserved_bytes(device: Device) -> Option<u64> {
    let (cuda, index) = cuda_of(device)?;
    cuda.reserved(index).ok()
}

/// Returns a sentence if `error` means that this process has lost `device`: only another process
/// can use it again.
pub fn lost(device: Device, error: &str) -> Option<String> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let mut reason = error.to_owned();
    if !is_context_lost(error) {
        // cuBLAS and other libraries report CUDA failures in their own words, so ask CUDA itself.
        reason = cuda::load().ok()?.memory(index).err()?.to_string();
        is_context_lost(&reason).then_some(())?;
    }
    let gpu = described(device).map(|gpu| format!(" ({}, {})", gpu.name, gpu.uuid));
    let (name, gpu) = (name(device), gpu.unwrap_or_default());
    let reason = first_line(&reason).trim_start_matches("libtorch: ");
    Some(format!("{name}{gpu} is lost to this process: {reason}"))
}

/// Returns the GPU number for the name of a video: the CUDA index, or 0 without a GPU.
pub fn number(device: Device) -> usize {
    match device {
        Device::Cuda(index) => index,
        _ => 0,
    }
}

/// Returns the identifiers of the GPU that CUDA calls `device`: CUDA index, physical number and PCI
/// address.
pub fn of_machine(device: Device) -> Option<env::Gpu> {
    static LOADED: LazyLock<Option<Nvml>> =
        LazyLock::new(|| Nvml::builder().lib_path(NVML.as_ref()).init().ok());
    let Device::Cuda(index) = device else {
        return None;
    };
    let facts = cuda::load().ok().and_then(|cuda| cuda.device(index).ok());
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    // Part of a GPU has no number of its own: simulators get it by the variable that the rank has.
    let is_part = visible.as_ref().is_some_and(|list| list.contains("MIG-"));
    let nvml = LOADED.as_ref().zip(facts.as_ref()).filter(|_| !is_part);
    let number = nvml.and_then(|(nvml, facts)| number_in(nvml, &facts.uuid));
    Some(env::Gpu {
        index,
        number: number.or_else(|| physical(index, visible.as_deref())),
        pci: facts.map(|facts| facts.pci),
    })
}

/// Returns the index that NVML, and with it `nvidia-smi`, gives to the GPU with the UUID `GPU-…`.
pub fn number_in(nvml: &Nvml, uuid: &str) -> Option<u32> {
    nvml.device_by_uuid(uuid).ok()?.index().ok()
}

/// Returns the index that `nvidia-smi` gives to CUDA's `index` if all GPUs are the same, for a
/// machine without the driver's management library.
/// `nvidia-smi` counts all GPUs of the machine, CUDA only those in `CUDA_VISIBLE_DEVICES`. Returns
/// `None` if that list has UUIDs, because they have no index.
fn physical(index: usize, visible: Option<&str>) -> Option<u32> {
    match visible.filter(|list| !list.trim().is_empty()) {
        None => u32::try_from(index).ok(),
        Some(list) => list.split(',').nth(index)?.trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_renderer_is_the_policys_gpu_whatever_cuda_calls_it() {
        assert_eq!(physical(1, None), Some(1));
        assert_eq!(physical(1, Some("4,6")), Some(6));
        assert_eq!(physical(0, Some("GPU-8a6c")), None);
    }

    #[test]
    fn a_cpu_is_never_lost() {
        assert_eq!(
            lost(Device::Cpu, "CUDA error: unspecified launch failure"),
            None
        );
    }
}
