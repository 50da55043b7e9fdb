//! What libtorch's allocator held.

use c10d::cuda;
use serde::Serialize;
use tch::Device;

/// Bytes since the last time that this was asked.
#[derive(Clone, Copy, Serialize)]
pub struct Memory {
    /// Of tensors, now.
    pub allocated_bytes: u64,
    /// Of tensors, at most.
    pub allocated_peak_bytes: u64,
    /// Had from the card, now.
    pub reserved_bytes: u64,
    /// Had from the card, at most.
    pub reserved_peak_bytes: u64,
}

/// `None` on a CPU.
pub fn since_last(device: Device) -> Option<Memory> {
    let (Device::Cuda(index), Ok(cuda)) = (device, cuda::load()) else {
        return None;
    };
    let (memory, reserved_bytes) = (cuda.memory(index).ok()?, cuda.reserved(index).ok()?);
    cuda.reset_peak(index).ok()?;
    Some(Memory {
        allocated_bytes: memory.allocated_bytes,
        allocated_peak_bytes: memory.allocated_peak_bytes,
        reserved_bytes,
        reserved_peak_bytes: memory.reserved_peak_bytes,
    })
}
