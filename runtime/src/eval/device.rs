//! The devices of a rank: the one that runs the policy, and those that render.

use jobs::bytes::ByteSize;
use jobs::eval_args::EvalArgs;
use jobs::job::Job;
use jobs::journal::Gpu;
use jobs::rank_env::RankEnv;
use tch::Device;

use crate::device::{Decision, DeviceRequest, Visible, resolve};
use crate::env;
use crate::eval::seating::Seating;
use crate::policy::PolicyError;
use c10d::cuda;
use c10d::torch_error::{caught_of_libtorch, first_line, is_context_lost};

/// Selects the device of this rank and makes it current, before anything else uses CUDA.
///
/// # Errors
/// Returns an error if the requested device does not exist.
pub fn decide(args: &EvalArgs, env: &RankEnv, seating: &Seating) -> Result<Decision, String> {
    let (loaded, visible) = (cuda::load(), visible()?);
    let request = DeviceRequest {
        local_rank: env.local_rank,
        local_world_size: env.local_world_size,
        policy_device_id: args.policy_device_id,
        policy_device: args.policy_device.clone(),
        config_device: seating
            .work
            .iter()
            .find_map(|work| config_device(&work.job)),
        placed: seating.placed(args, env),
    };
    let decision = resolve(&request, &visible).map_err(|err| err.to_string())?;
    if let (Ok(cuda), Device::Cuda(index)) = (loaded, decision.device) {
        cuda.select(index).map_err(|err| err.to_string())?;
    }
    Ok(decision)
}

/// Limits libtorch to `bytes` of GPU memory, divided among the `ranks` on that GPU, and returns a
/// line that says so. Call it before a policy is loaded, because the limit does not release memory
/// that is already allocated. Returns `None` on a CPU, where nothing is limited.
///
/// # Errors
/// Returns an error if the driver does not answer.
pub fn limit(device: Device, bytes: ByteSize, ranks: usize) -> Result<Option<String>, String> {
    let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load()) else {
        return Ok(None);
    };
    let own = part(bytes, ranks);
    cuda.limit(index, own.0).map_err(|err| err.to_string())?;
    let shared = if ranks > 1 {
        format!(", one part in {ranks} of --gpu-memory")
    } else {
        String::new()
    };
    Ok(Some(format!(
        "libtorch takes at most {own} of {}{shared}",
        name(device)
    )))
}

fn part(bytes: ByteSize, ranks: usize) -> ByteSize {
    ByteSize(bytes.0 / (ranks as u64).max(1))
}

/// Returns the CUDA devices that this process can see.
///
/// # Errors
/// Returns an error if the driver does not answer.
pub fn visible() -> Result<Visible, String> {
    match cuda::load() {
        Ok(cuda) => Ok(Visible::Cuda {
            count: cuda.device_count().map_err(|err| err.to_string())?,
        }),
        Err(none) => Ok(Visible::None {
            reason: none.reason.clone(),
        }),
    }
}

fn config_device(job: &Job) -> Option<String> {
    of_config(&job.policy_config)
}

/// Returns the device that a policy configuration requests; `policy_device_id` wins over
/// `policy_device`.
pub fn of_config(config: &serde_json::Map<String, serde_json::Value>) -> Option<String> {
    let id = config
        .get("policy_device_id")
        .and_then(serde_json::Value::as_u64);
    let device = config
        .get("policy_device")
        .and_then(serde_json::Value::as_str);
    id.map(|id| format!("cuda:{id}"))
        .or(device.map(str::to_owned))
}

/// Returns the used and the total bytes of the device's memory; `None` on a CPU or if the driver
/// does not answer.
pub fn memory(device: Device) -> Option<(u64, u64)> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let memory = cuda::load().ok()?.memory(index).ok()?;
    Some((
        memory.total_bytes.saturating_sub(memory.free_bytes),
        memory.total_bytes,
    ))
}

/// Returns the name of a device: `cpu` or `cuda:1`.
pub fn name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}

/// Returns the GPU's index, name, memory size and UUID as its driver reports them.
pub fn described(device: Device) -> Option<Gpu> {
    let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load()) else {
        return None;
    };
    let facts = cuda.device(index).ok()?;
    Some(Gpu {
        index,
        name: facts.name,
        bytes: facts.total_bytes,
        uuid: facts.uuid,
    })
}

/// Peak GPU memory of libtorch's allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Bytes that libtorch had reserved from the device.
    pub reserved_bytes: u64,
    /// Bytes that tensors occupied.
    pub allocated_bytes: u64,
}

/// Returns the peak memory of libtorch since the last call, and resets it.
pub fn take_peak(device: Device) -> Option<Peak> {
    let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load()) else {
        return None;
    };
    let memory = cuda.memory(index).ok()?;
    // If the reset fails, the next peak covers a longer time; it is still a correct upper bound.
    cuda.reset_peak(index).ok();
    Some(Peak {
        reserved_bytes: memory.reserved_peak_bytes,
        allocated_bytes: memory.allocated_peak_bytes,
    })
}

/// Returns the bytes that libtorch has reserved from the device now.
pub fn reserved_bytes(device: Device) -> Option<u64> {
    let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load()) else {
        return None;
    };
    cuda.reserved(index).ok()
}

/// Runs `work`, which uses `device` for the policy.
///
/// # Errors
/// Returns the error of `work`, or the message of a libtorch panic, or [`PolicyError::DeviceLost`]
/// if this process can no longer use the device.
pub fn using<T>(
    device: Device,
    work: impl FnOnce() -> Result<T, PolicyError>,
) -> Result<T, PolicyError> {
    let done =
        caught_of_libtorch(work).unwrap_or_else(|message| Err(PolicyError::Inference(message)));
    done.map_err(|err| loss(device, &err).unwrap_or(err))
}

/// Returns [`PolicyError::DeviceLost`] if `err` means that this process has lost `device`.
pub fn loss(device: Device, err: &PolicyError) -> Option<PolicyError> {
    lost(device, &err.to_string()).map(PolicyError::DeviceLost)
}

fn lost(device: Device, error: &str) -> Option<String> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let reason = if is_context_lost(error) {
        first_line(error).to_owned()
    } else {
        // cuBLAS and other libraries report CUDA failures in their own words, so ask CUDA itself.
        let answer = cuda::load().ok()?.memory(index).err()?.to_string();
        is_context_lost(&answer).then(|| first_line(&answer).to_owned())?
    };
    let gpu = described(device)
        .map(|gpu| format!(" ({}, {})", gpu.name, gpu.uuid))
        .unwrap_or_default();
    let reason = reason.trim_start_matches("libtorch: ");
    Some(format!(
        "{}{gpu} is lost to this process: {reason}",
        name(device)
    ))
}

/// Returns the GPU number for the name of a video: the CUDA index, or 0 without a GPU.
pub fn gpu(device: Device) -> usize {
    if let Device::Cuda(index) = device {
        index
    } else {
        0
    }
}

/// Returns the EGL device of all environments if `--egl-device` or `MUJOCO_EGL_DEVICE_ID` sets it.
pub fn egl(args: &EvalArgs) -> Option<u32> {
    let mujoco = || {
        std::env::var("MUJOCO_EGL_DEVICE_ID")
            .ok()
            .and_then(|id| id.trim().parse().ok())
    };
    args.egl_device.or_else(mujoco)
}

/// Returns the identifiers of the GPU that CUDA calls `device`: CUDA index, physical number and PCI
/// address.
pub fn of_machine(device: Device) -> Option<env::Gpu> {
    let Device::Cuda(index) = device else {
        return None;
    };
    let number = physical(
        device,
        std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(),
    );
    let facts = cuda::load().ok().and_then(|cuda| cuda.device(index).ok());
    Some(env::Gpu {
        index,
        number,
        pci: facts.map(|facts| facts.pci),
    })
}

/// Returns the index that `nvidia-smi` gives to `device`. `nvidia-smi` counts all GPUs of the
/// machine, CUDA only those in `CUDA_VISIBLE_DEVICES`. Returns `None` if that list has UUIDs,
/// because they have no index.
fn physical(device: Device, visible: Option<&str>) -> Option<u32> {
    let Device::Cuda(index) = device else {
        return None;
    };
    match visible.filter(|list| !list.trim().is_empty()) {
        None => u32::try_from(index).ok(),
        Some(list) => list.split(',').nth(index)?.trim().parse().ok(),
    }
}

/// Returns the model name of the CPU from `/proc/cpuinfo`.
pub fn cpu() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map(|(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_renderer_is_the_policys_gpu_whatever_cuda_calls_it() {
        assert_eq!(physical(Device::Cuda(1), None), Some(1));
        assert_eq!(physical(Device::Cuda(1), Some("4,6")), Some(6));
        assert_eq!(physical(Device::Cuda(0), Some("GPU-8a6c")), None);
        assert_eq!(physical(Device::Cpu, Some("0")), None);
    }

    #[test]
    fn ranks_on_one_gpu_divide_its_memory_and_a_cpu_has_none_to_limit() {
        let gib = |count: u64| ByteSize(count << 30);
        assert_eq!(
            [part(gib(12), 3), part(gib(12), 1), part(gib(12), 0)],
            [gib(4), gib(12), gib(12)]
        );
        assert_eq!(limit(Device::Cpu, gib(12), 1), Ok(None));
    }

    #[test]
    fn a_cpu_is_never_lost() {
        assert_eq!(
            lost(Device::Cpu, "CUDA error: unspecified launch failure"),
            None
        );
    }

    #[test]
    fn a_jobs_device_id_comes_before_its_device() {
        let job = |config| {
            let entry = json!({"name": "a", "arena_env_args": {"environment": "e"}, "policy_type": "p", "policy_config_dict": config});
            config_device(&jobs::file::parse(&json!({"jobs": [entry]})).unwrap()[0])
        };
        assert_eq!(
            job(json!({"policy_device": "cuda:2", "policy_device_id": 1})).as_deref(),
            Some("cuda:1")
        );
        assert_eq!(
            job(json!({"policy_device": "cuda:2"})).as_deref(),
            Some("cuda:2")
        );
        assert_eq!(job(json!({})), None);
    }
}
