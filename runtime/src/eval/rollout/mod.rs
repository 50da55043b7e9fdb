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
//! A job knows the [`crate::eval::rank_setup::RankSetup`] and its [`job::task::Task`], and
//! changes nothing but the [`crate::eval::ledger::Ledger`].

mod episode;
mod episode_loop;
pub mod job;
mod pictures;
pub mod recording;
mod schedule;
