//! Runs the episodes of one job in one rank.
//!
//! ```text
//! rank ─► job ─┬─► inference      the policy, in a thread of its own
//!              ├─► recording      dataset and videos, then the journal
//!              └─► episode_loop ─┬─► schedule   which environment runs which episode and action
//!                                ├─► episode    a running episode, and when it ends
//!                                └─► inference, recording
//! ```

mod busy;
mod episode;
mod episode_loop;
pub mod inference;
pub mod job;
mod recording;
mod schedule;
mod settings;
