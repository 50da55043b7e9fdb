//! How much GPU memory a run needs, before anything starts.
//!
//! ```text
//! memory ─► rrun fit, and the launcher's plan: weights, activations, graphs, environments
//! ppo    ─► rrun fit --ppo: the sizes of a training
//! ```
//! This crate has no async code, no libtorch and no unsafe code.

#![forbid(unsafe_code)]

pub mod memory;
pub mod ppo;
