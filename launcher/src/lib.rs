//! `rrun`: a torchrun-compatible rank launcher. Links no libtorch and starts in milliseconds.
//!
//! ```text
//! main ─► tools (files of a run)
//!   └───► cli ─► plan ─► agent ─► report
//!                 │        ├─► rendezvous ─► store
//!                node      ├─► process logs signals model_server
//!                          └─► group (pure)
//! ```

pub mod agent;
pub mod cli;
pub mod events;
pub mod failure;
pub mod logs;
pub mod model_server;
pub mod node;
pub mod numa;
pub mod partial_report;
pub mod plan;
pub mod process;
pub mod rendezvous;
pub mod report;
pub mod say;
pub mod signals;
pub mod slurm;
pub mod store;
pub mod tools;
