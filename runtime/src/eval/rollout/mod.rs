//! Runs the episodes of one job in one rank.
//!
//! ```text
//! rank ─► job ─┬─► inference      the policy, in a thread of its own
//!              ├─► episode_loop ─┬─► schedule    which environment runs which episode and action
//!              │                 ├─► episode     a running episode, and when it ends
//!              │                 └─► inference
//!              ├─► pictures       what environments show, for the page of the run
//!              └─► recording      dataset and videos, then the line in the journal
//! ```
//! Each owner lends what it has to the next: the rank its [`job::context::JobContext`] and the log
//! of the journal, the job the policy's properties, and the loop alone changes what runs.

mod episode;
mod episode_loop;
pub mod job;
mod pictures;
pub mod recording;
mod schedule;
pub mod totals;
