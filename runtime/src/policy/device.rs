//! What a device that fails means for a policy.

use tch::Device;
use torchlib::cuda;
use torchlib::torch_error::caught_of_libtorch;

use crate::device::gpu;
use crate::policy::{PolicyError, RowError};

/// Runs `work`, which uses `device` for the policy.
///
/// # Errors
/// Returns the error of `work`, or the message of a libtorch panic, or [`PolicyError::DeviceLost`]
/// if this process can no longer use the device.
pub fn using<T>(
    device: Device,
    work: impl FnOnce() -> Result<T, PolicyError>,
) -> Result<T, PolicyError> {
    let done = caught_of_libtorch(work).unwrap_or_else(|message| Err(RowError(message).into()));
    done.map_err(|err| loss(device, &err).unwrap_or(err))
}

/// Returns [`PolicyError::DeviceLost`] if `err` means that this process has lost `device`.
pub fn loss(device: Device, err: &PolicyError) -> Option<PolicyError> {
    match err {
        // What a worker says of CUDA is about its own context, not that of this process.
        PolicyError::Gone(_) => None,
        _ => gpu::lost(device, &err.to_string()).map(PolicyError::DeviceLost),
    }
}

/// Returns to the device what libtorch's allocator has cached: memory that was needed to load a
/// network, or that an inference could not use.
pub fn release(device: Device) {
    let (Device::Cuda(_), Ok(cuda)) = (device, cuda::load()) else {
        return;
    };
    if let Err(err) = cuda.empty_cache() {
        tracing::warn!("libtorch's cache is not released: {err}");
    }
}
