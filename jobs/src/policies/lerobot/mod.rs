//! What is known of a checkpoint before lerobot loads it.

mod checkpoint;
mod mapping;

pub use checkpoint::{CheckpointFeature, FeatureKind, LerobotCheckpoint};
pub use mapping::{FeatureMapping, MappedCamera, MappedState};

#[cfg(test)]
mod tests;
