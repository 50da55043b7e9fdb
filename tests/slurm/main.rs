//! Launches in real SLURM jobs. They are ignored by default, and pass with a word where there is no SLURM: run them with
//! `sbatch` and the other commands in `PATH`, two idle nodes and a file system that the nodes share with this one.

mod eval;
mod examples;
mod job;
mod launches;
mod model_server;
mod signals;
