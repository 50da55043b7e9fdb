//! Policy networks on libtorch, from unmodified checkpoints: tensors in, tensors out.
//!
//! ```text
//! gr00t     GR00T N1.7: configuration, processor, network
//! nn        layers that networks are built from      image     pictures to the bit
//! weights   tensors by name, on the device           graphs    captured passes, on a GPU
//! tokens    the tokens of texts
//! ```
//! The crate `runtime` interprets the settings of a job and assigns the cameras.

pub mod gr00t;
pub mod graphs;
pub mod image;
pub mod tokens;
pub mod weights;

mod cache;
mod error;
mod json;
mod nn;

pub use error::no_room;
pub use weights::Weights;

// Test helpers shared with the crate `runtime` refer to this crate by its name.
#[cfg(test)]
extern crate self as models;
