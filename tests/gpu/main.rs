//! What only a card can show. `RRUN_DEVICE=cuda` (or `cuda:1`) says that there is one: then nothing here passes without
//! it. `RRUN_DEVICE=cpu` tries what can be tried without one; without the variable every test says so and passes.
//!
//! ```text
//! RRUN_DEVICE=cuda cargo test --release --locked --workspace --test gpu -- --test-threads 1 --nocapture
//! ```
//!
//! On a machine without the sources' folder or cargo, `RRUN_ROOT` names the checkout and `RRUN_BIN` the folder of `rrun`
//! and `rrun-rank`; `benches/gpu.sh` sets both.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod card;
#[path = "../parity/case.rs"]
#[allow(dead_code, reason = "the tests on a CPU need more of it")]
mod case;
#[path = "../eval/command.rs"]
#[allow(dead_code, reason = "the tests of `rrun eval` need more of it")]
mod command;
#[path = "../parity/compare.rs"]
#[allow(dead_code, reason = "the tests on a CPU need more of it")]
mod compare;
mod evaluation;
mod facts;
mod gather;
mod graphs;
mod loading;
mod nccl;
mod operators;
mod parity;
mod policy;
mod ranks;
