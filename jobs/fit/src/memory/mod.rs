//! Predicts the GPU memory of a run before anything is started. It adds up what is known about
//! checkpoints and simulators for each GPU, and compares the sum with the free memory. An unknown
//! amount is reported as unknown, and never counted as zero.
//!
//! ```text
//! job ─┬─ policy       weights (headers), activations, graphs (gr00t)     ─┐
//!      └─ environment  declared, measured, published × copies ─────────────┤
//! rank ─── context ────────────────────────────────────────────────────────┴─► Need ─┬─► Fit
//!                   GpuMemory (NVML, --gpu-memory) ──────────────────────────────────┴─► Proposal
//! ```
//! Everything here is pure, except that the files of checkpoints and measurements are read once.

mod amount;
mod checkpoint;
mod environment;
mod gr00t;
pub mod measured;
mod planner;
mod policy;
mod propose;
pub mod table;

pub use amount::{Fit, GpuBudget, MemoryAmount, Need};
pub use measured::Measured;
pub use planner::{MemoryOptions, MemoryPlanner};
pub use propose::{BatchRows, Proposal, ProposalLimit};

/// Memory of a CUDA context in each process, with the kernels of libtorch, cuBLAS and NCCL that it
/// loads. This is an assumption: contexts of PyTorch take between 0.3 and 0.6 GiB depending on GPU
/// and CUDA version, and none was measured here.
pub const CONTEXT: u64 = 512 << 20;
