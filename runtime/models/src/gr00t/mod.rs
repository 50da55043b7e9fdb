//! GR00T N1.7.
//!
//! ```text
//! model directory ─► directory ─► config   sizes of the network, checked
//!                        │
//!                        └──────► weights ─► tensors by name, on the device ─► model
//!
//! observations ─► processor ─► inputs ─► model ─► processor ─► actions
//!                                          └─ graphs: captured passes, on a GPU
//! ```

pub mod config;
pub mod directory;
pub mod inputs;
pub mod model;
pub mod processor;

pub use config::{
    DiffusionConfig, ModelConfig, RopeScaling, TextConfig, VisionConfig, VlSelfAttention, VlmConfig,
};
pub use directory::ModelDir;
