//! Explains a hang before it is ended: the stacks of all threads of all ranks of this node, grouped,
//! in `hang_<n>.txt`.
//!
//! ```text
//! SIGUSR2 ───────────────────────────┐
//! a timer of torch has expired ──────┤                                  ┌► the timer's signal
//! no progress for --hang-timeout ────┴► capture ─► trace, group, write ─┴► --on-hang
//!                                       (ms)       (another thread)
//! ```

pub mod capture;
pub mod groups;
pub mod plan;
pub mod pulses;
pub mod reason;
pub mod text;
pub mod timer;
pub mod watch;

use stacks::Trace;

use crate::node::gpu_use::{GpuUse, NoAnswer};

/// What was found out about the ranks of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HangReport {
    /// Number of the report in this launch, from 1.
    pub number: usize,
    /// The program that was launched.
    pub title: String,
    /// Name of this machine.
    pub host: String,
    /// When the ranks were captured (RFC 3339).
    pub time: String,
    /// Why the report was made.
    pub reason: String,
    /// The processes, ordered by rank.
    pub processes: Vec<ProcessReport>,
    /// How the GPUs of the node are used; empty if there is no NVML.
    pub gpus: Result<Vec<GpuUse>, NoAnswer>,
    /// The last lines that each rank wrote, if they were captured.
    pub last_lines: Vec<(usize, Vec<String>)>,
}

/// The stacks of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessReport {
    /// Global rank.
    pub rank: usize,
    /// Name of the program, if the rank has started it; `None` for the rank's own process.
    pub child: Option<String>,
    /// Its stacks.
    pub trace: Trace,
}
