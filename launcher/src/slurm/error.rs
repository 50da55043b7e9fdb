//! Why nothing can be inferred from SLURM's variables.

use crate::slurm::hostlist::HostlistError;

/// Why nothing can be inferred from SLURM's variables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlurmError {
    /// A variable that every step has.
    #[error("SLURM's variable {0} is not set; `--slurm off` launches without SLURM's variables")]
    Missing(&'static str),
    /// A variable that is not as SLURM writes it.
    #[error("SLURM's variable {name} is `{found}`, which is not {wanted}; `--slurm off` launches without them")]
    Value {
        /// Its name.
        name: &'static str,
        /// Its value.
        found: String,
        /// What would do.
        wanted: &'static str,
    },
    /// The list of the step's nodes.
    #[error("SLURM's variable {name}: {err}; `--slurm off` launches without SLURM's variables")]
    Nodes {
        /// Its name.
        name: &'static str,
        /// Why it cannot be read.
        err: HostlistError,
    },
    /// Variables that contradict each other.
    #[error("SLURM's {what} has {found} entries for {nnodes} nodes; `--slurm off` launches without SLURM's variables")]
    Length {
        /// Which list.
        what: &'static str,
        /// Its length.
        found: usize,
        /// What it should be.
        nnodes: usize,
    },
    /// A launcher for each task, and each to start several ranks.
    #[error(
        "SLURM runs {tasks} tasks on this node and each would launch --nproc-per-node {nproc}: use srun \
         --ntasks-per-node=1, or leave --nproc-per-node out and each task is a rank (--standalone or --slurm off for \
         launches of their own)"
    )]
    Launchers {
        /// Tasks of the step on this node.
        tasks: usize,
        /// As given.
        nproc: String,
    },
    /// With `--distribution=arbitrary` nobody but SLURM knows where task 0 is.
    #[error("srun --distribution=arbitrary may put task 0 on any node: give --master-addr and --master-port")]
    Arbitrary,
}
