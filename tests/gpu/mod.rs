//! Tests on a GPU, which are ignored otherwise. With `RRUN_DEVICE=cuda` (or `cuda:1`) none passes
//! without one; `RRUN_DEVICE=cpu` runs those that can do without.
//!
//! ```text
//! RRUN_DEVICE=cuda cargo test --release --locked --workspace --test torch -- \
//!     gpu:: --include-ignored --test-threads 1 --nocapture
//! ```
//!
//! `tests/imitation/run.py` runs them on an imitation of CUDA. On a machine without the sources or
//! cargo, `RRUN_ROOT` names the checkout and `RRUN_BIN` the folder of `rrun` and `rrun-rank`;
//! `benches/gpu.sh` sets both.

mod card;
#[path = "../eval/command.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the tests of `rrun eval` need more of it"
)]
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
