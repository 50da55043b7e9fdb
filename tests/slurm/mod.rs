//! Launches in real SLURM jobs. They are ignored by default, and print a message and pass if there
//! is no SLURM. They need `sbatch` and the other commands in `PATH`, two idle nodes, and a file
//! system that the nodes share with this machine.

mod eval;
mod examples;
mod job;
mod launches;
mod model_server;
mod signals;
