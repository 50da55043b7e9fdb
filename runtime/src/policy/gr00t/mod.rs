//! Runs an unmodified GR00T N1.7 checkpoint on libtorch.
//!
//! ```text
//! model directory ─► directory ─► config   sizes of the network, checked
//!                        │
//!                        └──────► weights ─► tensors by name, on the device ─► model
//!                                  write ◄─ the same tensors, to create such a directory
//!
//! settings (job, YAML) ─► policy ◄─ models (loaded checkpoint)
//!                          │
//! Observation ─► wiring ─► inference: processor ─► inputs ─► model ─► processor ─► wiring ─► Chunk
//!                                                             └─ graphs: captured passes, on a GPU
//! ```

pub mod config;
pub mod directory;
pub mod graphs;
pub mod inference;
pub mod inputs;
pub mod layout;
pub mod model;
pub mod processor;
pub mod remote;
pub mod weights;
pub mod wiring;
pub mod write;

mod error;
mod history;
mod joints;
mod models;
mod policy;
mod served;
mod settings;

pub use config::{DiffusionConfig, ModelConfig, TextConfig, VisionConfig, VlSelfAttention, VlmConfig};
pub use directory::ModelDir;
pub use error::LoadError;
pub use joints::Joints;
pub use models::{Loaded, Models};
pub use policy::Gr00tPolicy;
pub use served::Gr00tServed;
pub use settings::Settings;
pub use weights::{Named, Weights};
pub use write::write_checkpoint;
