//! The reason why a device cannot capture or replay a pass.

use c10d::DistError;

/// The reason why a pass cannot be captured, fed or replayed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// CUDA or libtorch refuses.
    #[error(transparent)]
    Device(#[from] DistError),
    /// libtorch has panicked.
    #[error("{reason}")]
    Panicked {
        /// libtorch's error message.
        reason: String,
    },
}
