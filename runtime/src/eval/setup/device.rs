//! The devices that the command line gives to a rank: the one that runs the policy, and the one that
//! renders.

use jobs::assign::Work;
use jobs::bytes::ByteSize;
use jobs::eval_args::EvalArgs;
use jobs::rank_env::RankEnv;
use jobs::refusal::Refusal;
use tch::Device;

use crate::device::{self, Decision, DeviceRequest, Placed, gpu, resolve};
use torchlib::{TorchError, cuda};

/// Selects the device of a rank with this `work` and makes it current, before anything else uses
/// CUDA. `placed` is the GPU that the placement assigns to it.
///
/// # Errors
/// Returns an error if the requested device does not exist.
pub fn decide(
    args: &EvalArgs,
    env: &RankEnv,
    work: &[Work],
    placed: Option<Placed>,
) -> Result<Decision, Refusal> {
    let (loaded, visible) = (cuda::load(), gpu::visible()?);
    let request = DeviceRequest {
        local_rank: env.local_rank,
        local_world_size: env.local_world_size,
        policy_device_id: args.policy_device_id,
        policy_device: args.policy_device.clone(),
        config_device: work
            .iter()
            .find_map(|work| device::of_config(&work.job.policy_config)),
        placed,
    };
    let decision = resolve(&request, &visible)?;
    if let (Ok(cuda), Device::Cuda(index)) = (loaded, decision.device) {
        cuda.select(index).map_err(Refusal::new)?;
    }
    Ok(decision)
}

/// Limits libtorch to `bytes` of GPU memory, divided among the `ranks` on that GPU, and returns a
/// line that says so. Call it before a policy is loaded, because the limit does not release memory
/// that is already allocated. Returns `None` on a CPU, where nothing is limited.
///
/// # Errors
/// Returns an error if the driver does not answer.
pub fn limit(device: Device, bytes: ByteSize, ranks: usize) -> Result<Option<String>, TorchError> {
    let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load()) else {
        return Ok(None);
    };
    let own = part(bytes, ranks);
    cuda.limit(index, own.0)?;
    let shared = if ranks > 1 {
        format!(", one part in {ranks} of --gpu-memory")
    } else {
        String::new()
    };
    Ok(Some(format!(
        "libtorch uses at most {own} of {}{shared}",
        gpu::name(device)
    )))
}

fn part(bytes: ByteSize, ranks: usize) -> ByteSize {
    ByteSize(bytes.0 / (ranks as u64).max(1))
}

/// Returns the EGL device of all environments if `--egl-device` or `MUJOCO_EGL_DEVICE_ID` sets it.
pub fn egl(args: &EvalArgs) -> Option<u32> {
    let mujoco = || {
        std::env::var("MUJOCO_EGL_DEVICE_ID")
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    args.egl_device.or_else(mujoco)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ranks_on_one_gpu_divide_its_memory_and_a_cpu_has_none_to_limit() {
        let gib = |count: u64| ByteSize(count << 30);
        assert_eq!(
            [part(gib(12), 3), part(gib(12), 1), part(gib(12), 0)],
            [gib(4), gib(12), gib(12)]
        );
        assert_eq!(limit(Device::Cpu, gib(12), 1).unwrap(), None);
    }

    #[test]
    fn a_jobs_device_id_comes_before_its_device() {
        let job = |config| {
            let jobs = crate::eval::tests::jobs([json!({"policy_config_dict": config})]);
            device::of_config(&jobs[0].policy_config)
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
