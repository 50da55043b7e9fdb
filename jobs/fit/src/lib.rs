//! How much GPU memory a run needs, before anything starts. It adds up what is known about
//! checkpoints and simulators for each GPU, and compares the sum with the free memory. An unknown
//! amount is reported as unknown, and never counted as zero. Beside it, the sizes of a PPO training
//! ([`ppo`]).
//!
//! ```text
//! job ─┬─ policy       weights (headers), activations, graphs (gr00t)     ─┐
//!      └─ environment  declared, measured, published × copies ─────────────┤
//! rank ─── context ────────────────────────────────────────────────────────┴─► Need ─┬─► Fit
//!                   GpuMemory (NVML, --gpu-memory) ──────────────────────────────────┴─► Proposal
//! ```
//! Everything here is pure, except that the files of checkpoints and measurements are read once.
//! This crate has no async code, no libtorch and no unsafe code.

#![forbid(unsafe_code)]

mod amount;
pub mod checkpoint;
mod gr00t;
mod measured;
mod planner;
mod policy;
pub mod ppo;
mod propose;

pub use amount::{Fit, GpuBudget, MemoryAmount, Need};
pub use measured::Measured;
pub use planner::{MemoryOptions, MemoryPlanner};
pub use propose::{BatchRows, Proposal, ProposalLimit};
