//! Launches in real SLURM jobs. They are ignored by default, and print a message and pass if there
//! is no SLURM. Without it, `nodes::steps` and `launch::model_server` play its tasks. They need
//! `sbatch` and the other commands in `PATH`, two idle nodes, and a file system that the nodes
//! share with this machine.

mod eval;
mod examples;
mod job;
mod launches;
mod signals;
