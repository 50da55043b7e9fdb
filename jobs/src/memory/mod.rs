//! How much GPU memory a run will need, before anything is started: what is known about checkpoints and simulators, added
//! up for each GPU and held against what is free. What is not known is said to be unknown, and never counted as nothing.
//!
//! ```text
//! job ─┬─ policy       weights (headers), activations, graphs (allocator) ─────────────┐
//!      └─ environment  declared, measured, published × copies ─────────────────────────┤
//! rank ─── context ────────────────────────────────────────────────────────────────────┴─► Need of each GPU ─┬─► Fit
//!                                                              Budget (NVML, --gpu-memory) ──────────────────┴─► Proposal
//! ```
//! Pure but for the files of checkpoints and measurements, which are read once.

mod allocator;
pub mod bytes;
mod checkpoint;
mod environment;
mod gr00t;
pub mod measured;
mod need;
mod part;
mod planner;
mod policy;
mod propose;
pub mod table;

pub use bytes::ByteSize;
pub use gr00t::graph_sizes;
pub use measured::{DECLARED, Measured};
pub use need::{Budget, Fit, Need};
pub use part::Part;
pub use planner::{Planner, Terms};
pub use policy::graph_cap;
pub use propose::{Batch, Proposal, Why};

/// A CUDA context with the kernels of libtorch, cuBLAS and NCCL that it loads, a process. An assumption: contexts of
/// PyTorch are between 0.3 and 0.6 GiB by card and CUDA version, and none was measured here.
pub const CONTEXT: u64 = 512 << 20;
