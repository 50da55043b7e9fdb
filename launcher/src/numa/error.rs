//! Errors of `--numa-binding`.

/// The reason why a rank cannot be bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumaError {
    /// A rank has no GPU.
    #[error("local rank {local_rank} has no GPU to bind to, {visible} are visible")]
    NoGpu {
        /// The first rank without a GPU.
        local_rank: usize,
        /// Number of visible GPUs.
        visible: usize,
    },
    /// The GPU is not found in `/sys`.
    #[error("the bus address of GPU {0} is not known")]
    NoAddress(usize),
    /// A file of `/sys` is missing or has an unexpected format.
    #[error("cannot read `{path}`: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The affinity mask leaves no CPU of the GPU's node.
    #[error("this process may use no CPU of NUMA node {0}")]
    NoCpu(usize),
    /// `exclusive` with more GPUs than cores.
    #[error("NUMA node {node} has {cores} physical cores for {gpus} GPUs")]
    TooFewCores {
        /// The NUMA node.
        node: usize,
        /// Number of its cores that may be used.
        cores: usize,
        /// Number of its GPUs.
        gpus: usize,
    },
}
