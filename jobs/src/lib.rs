//! The data that launcher and ranks share: what to evaluate, where, and the results.
//!
//! ```text
//! file, config ─► setup ─► Job ─► plan ─► assign ─► seed     (what each rank runs)
//!            placement ──────────────┼──────┘                   (and on which GPU)
//!                                    └──► journal ─► report ─► table, page   (results)
//! ```
//! This crate has no async code, no libtorch and no unsafe code.

#![forbid(unsafe_code)]

pub mod assign;
pub mod compare;
pub mod config;
pub mod episode;
pub mod eval_args;
pub mod exit;
pub mod file;
pub mod files;
pub mod host;
pub mod hub;
pub mod job;
pub mod journal;
pub mod known;
pub mod launch;
pub mod layout;
pub mod memory;
pub mod merge;
pub mod model_server;
pub mod page;
pub mod placement;
pub mod plan;
pub mod ppo;
pub mod printable;
mod random;
pub mod rank_env;
pub mod report;
pub mod say;
pub mod secrets;
pub mod seed;
pub mod serve_args;
pub mod setup;
pub mod sha256;
pub mod stats;
pub mod suspects;
pub mod table;
pub mod threads;
pub mod time;
pub mod trust;
pub mod usage;
pub mod verify;
