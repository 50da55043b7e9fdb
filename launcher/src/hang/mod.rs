//! Explains a hang before it is ended: the stacks of all threads of all ranks of this node, grouped,
//! in `hang_<n>.txt`.
//!
//! ```text
//! SIGUSR2 ───────────────────────────┐
//! a timer of torch has expired ──────┤                                            ┌► the timer's signal
//! no progress for --hang-timeout ────┴► capture (ms) ─► trace, group, write (s) ──┴► --on-hang
//!                                       another thread: the launch goes on
//! ```

pub mod groups;
pub mod plan;
pub mod report;
pub mod timer;
pub mod watch;
