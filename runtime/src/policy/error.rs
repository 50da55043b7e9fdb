//! The errors of policies, and what a device that fails means for them.

use std::fmt::Display;
use std::path::Path;

use jobs::refusal::Refusal;
use tch::Device;
use torchlib::cuda;
use torchlib::torch_error::caught_of_libtorch;

use crate::device::gpu;

/// Why a policy cannot be made, or has no answers.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The policy cannot be made, or answers no row any more.
    #[error("{0}")]
    Failed(String),
    /// The inference of some rows failed, or of all.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The process has lost its GPU; only a new process can use it again.
    #[error("{0}")]
    DeviceLost(String),
    /// What infers has ended for good: the worker of a Python policy, or the policy's thread.
    #[error("{0}")]
    Gone(String),
}

/// Why the inference of a row failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RowError(pub String);

impl PolicyError {
    /// Returns the error about a file that a policy cannot be made from.
    pub(crate) fn file(path: &Path, reason: impl Display) -> Self {
        Self::Failed(format!("`{}`: {reason}", path.display()))
    }

    /// Returns whether no later call of the policy can succeed in this process.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::DeviceLost(_) | Self::Gone(_))
    }

    /// Returns the error of an inference of one row as that of the row.
    ///
    /// # Errors
    /// Returns the error itself if no other row would fare better.
    pub(in crate::policy) fn of_row(self) -> Result<RowError, Self> {
        match self {
            Self::Row(err) => Ok(err),
            other => Err(other),
        }
    }
}

impl From<Refusal> for PolicyError {
    fn from(refusal: Refusal) -> Self {
        Self::Failed(refusal.to_string())
    }
}

impl From<Refusal> for RowError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.to_string())
    }
}

impl RowError {
    /// Creates the error for a reason.
    pub(crate) fn new(reason: impl Display) -> Self {
        Self(reason.to_string())
    }

    /// Returns the error about a camera that an observation does not show.
    pub(crate) fn no_picture(camera: &str) -> Self {
        Self(format!("the observation has no picture of camera {camera}"))
    }

    /// Returns the error about a state that an observation does not have.
    pub(crate) fn no_state(name: &str) -> Self {
        Self(format!("the observation has no state {name}"))
    }

    /// Returns the error about a `picture of camera` or a `state` of another size than in the first
    /// observation.
    pub(crate) fn resized(what: &str, name: &str) -> Self {
        Self(format!(
            "the observation has no {what} {name} of the size it began with"
        ))
    }

    /// Returns the error about an observation that does not say what is to be done.
    pub(crate) fn no_instruction() -> Self {
        Self::new("neither job nor environment has an instruction; set language_instruction")
    }

    /// Returns the error about a row for which a network gave no result.
    pub(crate) fn not_inferred() -> Self {
        Self::new("the row was not inferred")
    }
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
