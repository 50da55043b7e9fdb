//! `--numa-binding`: chooses the CPUs that a rank may use by the location of its GPU. Does not need
//! `numactl`.
//!
//! ```text
//! /sys ─► machine::Machine ──bind──► CpuList ─► pre_exec: sched_setaffinity
//!         (a snapshot)      (pure)
//! ```
//! Source: torch/numa/binding.py, torch 2.11. The GPU of a rank is the one that CUDA shows at its
//! local rank.

pub mod bind;
pub mod cpus;
pub mod error;
pub mod machine;

pub use crate::numa::bind::{Mode, bind};
pub use crate::numa::cpus::CpuList;
pub use crate::numa::machine::Machine;
