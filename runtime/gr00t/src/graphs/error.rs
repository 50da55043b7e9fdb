//! The reason why a device cannot capture or replay a pass.

use c10d::TorchError;

/// The reason why a pass cannot be captured, fed or replayed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// CUDA or libtorch refuses.
    #[error(transparent)]
    Device(#[from] TorchError),
    /// libtorch has panicked.
    #[error("{reason}")]
    Panicked {
        /// libtorch's error message.
        reason: String,
    },
}
