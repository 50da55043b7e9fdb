//! GR00T N1.7 on libtorch, from an unmodified checkpoint: tensors in, tensors out.
//!
//! ```text
//! model directory ─► directory ─► config   sizes of the network, checked
//!                        │
//!                        └──────► weights ─► tensors by name, on the device ─► model
//!
//! observations ─► processor ─► inputs ─► model ─► processor ─► actions
//!                                          └─ graphs: captured passes, on a GPU
//! ```
//! The crate `runtime` interprets the settings of a job and assigns the cameras.

pub mod config;
pub mod directory;
pub mod graphs;
pub mod inputs;
pub mod model;
pub mod processor;
pub mod weights;

mod error;

pub use config::{
    DiffusionConfig, ModelConfig, TextConfig, VisionConfig, VlSelfAttention, VlmConfig,
};
pub use directory::ModelDir;
pub use error::no_room;
pub use weights::{Named, Weights};

// Test helpers shared with the crate `runtime` refer to this crate by its name.
#[cfg(test)]
extern crate self as gr00t;
