//! `--numa-binding`: which CPUs a rank may use, by where its GPU sits. No `numactl` is needed.
//!
//! ```text
//! /sys ─► machine::Machine ──bind──► CpuList ─► pre_exec: sched_setaffinity
//!         (a snapshot)      (pure)
//! ```
//! torch/numa/binding.py, torch 2.11; the GPU of a rank is the one that CUDA shows under its local rank.

pub mod bind;
pub mod cpus;
pub mod machine;

pub use crate::numa::bind::{Mode, bind};
pub use crate::numa::cpus::CpuList;
pub use crate::numa::machine::Machine;

/// Why a rank cannot be bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumaError {
    /// No device for a rank.
    #[error("local rank {local_rank} needs a GPU to be near to, {visible} are visible")]
    NoGpu {
        /// The rank without one.
        local_rank: usize,
        /// How many there are.
        visible: usize,
    },
    /// A GPU that is not found in `/sys`.
    #[error("the bus address of GPU {0} is not known")]
    NoAddress(usize),
    /// A file of `/sys` that is not there or not as the kernel writes it.
    #[error("cannot read `{path}`: {reason}")]
    File {
        /// Where.
        path: String,
        /// Why.
        reason: String,
    },
    /// The affinity mask leaves nothing.
    #[error("this process may use no CPU of NUMA node {0}")]
    NoCpu(usize),
    /// `exclusive` with too many GPUs.
    #[error("NUMA node {node} has {cores} physical cores for {gpus} GPUs")]
    TooFewCores {
        /// The node.
        node: usize,
        /// Its cores that may be used.
        cores: usize,
        /// GPUs that sit there.
        gpus: usize,
    },
}
