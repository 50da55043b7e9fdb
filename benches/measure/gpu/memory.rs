//! Reads the memory statistics of libtorch's allocator.

use serde::Serialize;
use tch::Device;
use torchlib::cuda;

/// Memory of the allocator, in bytes. The peaks count from the previous reading.
#[derive(Clone, Copy, Serialize)]
pub struct Memory {
    /// Memory of tensors at the moment.
    pub allocated_bytes: u64,
    /// Peak memory of tensors.
    pub allocated_peak_bytes: u64,
    /// Memory reserved on the GPU at the moment.
    pub reserved_bytes: u64,
    /// Peak memory reserved on the GPU.
    pub reserved_peak_bytes: u64,
}

/// Reads the statistics and resets the peaks; returns `None` on a CPU.
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
