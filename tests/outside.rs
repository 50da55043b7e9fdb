//! Tests of `rrun` and `rrun-rank` from outside: they start the programs that lie beside this one
//! (`cargo build` makes them), and link no libtorch.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod chaos;
mod eval;
mod git;
mod launch;
mod nodes;
mod serve;
mod slurm;
mod tools;
