//! GR00T N1.7: an unmodified checkpoint, run on libtorch.
//!
//! ```text
//! model directory ─► directory ─► config   sizes of the network, checked
//!                        │
//!                        └──────► weights ─► tensors by name, on the device
//! ```

pub mod config;
pub mod directory;
pub mod inputs;
pub mod layout;
pub mod model;
pub mod weights;

mod error;

pub use config::{DiffusionConfig, ModelConfig, TextConfig, VisionConfig, VlSelfAttention, VlmConfig};
pub use directory::ModelDir;
pub use error::LoadError;
pub use weights::{Named, Weights};
