//! The data that launcher and ranks share: what to evaluate, where, and what happened.
//!
//! ```text
//! file, rlinf  ─► setup ─► Job ─► plan ─► assign ─► seed     (what each rank runs)
//!            placement ──────────────┼──────┘                   (and on which GPU)
//!                                    └──► journal ─► progress   (what is done)
//! ```
//! The crate `report` makes reports of plans and journals, and the crate `fit` plans memory.
//! This crate has no async code, no libtorch and no unsafe code.

#![forbid(unsafe_code)]

pub mod assign;
pub mod bytes;
pub mod captured_graphs;
pub mod costs;
pub mod count;
pub mod environments;
pub mod episode;
pub mod eval_args;
pub mod experiment;
pub mod exported;
pub mod file;
pub mod files;
pub mod finding;
pub mod format;
pub mod host;
pub mod hub;
pub mod inputs;
pub mod installed;
pub mod interface;
pub mod job;
pub mod journal;
pub mod latency;
pub mod launch;
pub mod layout;
pub mod live;
pub mod model_server;
pub mod numbers;
pub mod placement;
pub mod plan;
pub mod policies;
pub mod printable;
pub mod programs;
pub mod progress;
pub mod random;
pub mod rank_env;
pub mod refusal;
pub mod rlinf;
pub mod rules;
pub mod safetensors;
#[doc(hidden)]
pub mod samples;
pub mod say;
pub mod secrets;
pub mod seed;
pub mod serve_args;
pub mod settings;
pub mod setup;
pub mod sha256;
pub mod suites;
pub mod table;
pub mod threads;
pub mod time;
pub mod tracking;
pub mod tree;
pub mod trust;
pub mod usage;
pub mod wiring;
