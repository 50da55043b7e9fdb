//! Errors of the inference from SLURM's variables.

use crate::slurm::hostlist::HostlistError;

/// The reason why nothing can be inferred from SLURM's variables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlurmError {
    /// A variable is missing that every step has.
    #[error("SLURM's variable {0} is not set; `--slurm off` launches without SLURM's variables")]
    Missing(&'static str),
    /// A variable does not have the form in which SLURM writes it.
    #[error(
        "SLURM's variable {name} is `{found}`, which is not {wanted}; `--slurm off` launches without them"
    )]
    Value {
        /// Name of the variable.
        name: &'static str,
        /// Its value.
        found: String,
        /// The expected form.
        wanted: &'static str,
    },
    /// The list of the step's nodes cannot be parsed.
    #[error("SLURM's variable {name}: {err}; `--slurm off` launches without SLURM's variables")]
    Nodes {
        /// Name of the variable.
        name: &'static str,
        /// The reason.
        err: HostlistError,
    },
    /// Variables contradict each other.
    #[error(
        "SLURM's {what} has {found} entries for {nnodes} nodes; `--slurm off` launches without SLURM's variables"
    )]
    Length {
        /// The list with the wrong length.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The expected length.
        nnodes: usize,
    },
    /// SLURM starts a launcher for each task, and each of them would start several ranks.
    #[error(
        "SLURM runs {tasks} tasks on this node and each would launch --nproc-per-node {nproc}: use srun \
         --ntasks-per-node=1, or leave --nproc-per-node out and each task is a rank (--standalone or --slurm off for \
         launches of their own)"
    )]
    Launchers {
        /// Number of tasks of the step on this node.
        tasks: usize,
        /// The value given for `--nproc-per-node`.
        nproc: String,
    },
    /// With `--distribution=arbitrary`, only SLURM knows where task 0 is.
    #[error(
        "srun --distribution=arbitrary may put task 0 on any node: give --master-addr and --master-port"
    )]
    Arbitrary,
}
