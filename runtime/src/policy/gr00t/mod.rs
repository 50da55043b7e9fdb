//! A GR00T N1.7 checkpoint as a policy: reads the settings of a job, assigns cameras and states to
//! the network's inputs, and infers batches. The network itself is in the crate [`models`].
//!
//! ```text
//! settings (job, YAML) ─► policy ◄─ model (loaded checkpoint)
//!                          │
//! Observation ─► wiring ─► inference: models ─► wiring ─► Chunk
//! ```

pub mod inference;

mod continuing;
mod model;
mod policy;
mod settings;

pub use model::LoadedModel;
pub use policy::Gr00tPolicy;
pub(crate) use policy::placed;
pub use settings::read;
pub(crate) use settings::{find_model, lengths};
