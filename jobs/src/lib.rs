//! What to evaluate, where, and what came out: the data that launcher and rank share.
//!
//! ```text
//! file ─► Job ─► plan ─► assign ─► seed          (what each rank runs)
//!                  │
//!                  └──► journal ─► report ─► table   (what came out: a pure merge of plan and journals)
//! ```
//! No async, no libtorch, no unsafe.

#![forbid(unsafe_code)]

pub mod assign;
pub mod episode;
pub mod eval_args;
pub mod file;
pub mod job;
pub mod journal;
pub mod known;
pub mod layout;
pub mod placement;
pub mod plan;
pub mod rank_env;
pub mod report;
pub mod seed;
pub mod stats;
pub mod table;
pub mod time;
