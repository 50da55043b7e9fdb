//! Reads the memory statistics of libtorch's allocator.

use serde_json::{Value, json};
use tch::Device;
use torchlib::cuda;

/// Returns the memory of tensors and that reserved on the GPU, at the moment and at most since the
/// previous reading, in bytes; `None` on a CPU.
pub fn since_last(device: Device) -> Option<Value> {
    let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load()) else {
        return None;
    };
    let (memory, reserved) = (cuda.memory(index).ok()?, cuda.reserved(index).ok()?);
    cuda.reset_peak(index).ok()?;
    Some(json!({
        "allocated_bytes": memory.allocated_bytes,
        "allocated_peak_bytes": memory.allocated_peak_bytes,
        "reserved_bytes": reserved,
        "reserved_peak_bytes": memory.reserved_peak_bytes,
    }))
}
