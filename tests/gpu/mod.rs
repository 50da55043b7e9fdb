//! Tests that need a GPU. With `RRUN_DEVICE=cuda` (or `cuda:1`) no test passes without one.
//! `RRUN_DEVICE=cpu` runs the tests that can do without. If the variable is not set, every test
//! prints that it is skipped and passes.
//!
//! ```text
//! RRUN_DEVICE=cuda cargo test --release --locked --workspace --test gpu -- \
//!     --test-threads 1 --nocapture
//! ```
//!
//! On a machine without the sources or cargo, `RRUN_ROOT` names the checkout and `RRUN_BIN` the
//! folder of `rrun` and `rrun-rank`; `benches/gpu.sh` sets both.

mod card;
#[path = "../eval/command.rs"]
#[allow(dead_code, reason = "the tests of `rrun eval` need more of it")]
mod command;
mod evaluation;
mod exported;
mod facts;
mod gather;
mod graphs;
mod loading;
mod nccl;
mod operators;
mod parity;
mod policy;
mod ranks;
