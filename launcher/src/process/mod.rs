//! A rank as a process: started in its own session, seen when it exits, signalled and killed as a group.
//!
//! ```text
//! environment ─► command ─► start: fork, pre_exec ─► Rank ──peek──► Exit     the leader stays a zombie until `reap`,
//!                                                     │                      so its number cannot go to a stranger
//!                                                     └─signal─► its process group
//! leftover: what a rank left behind, by session or because the kernel gave it to us
//! ```

pub mod children;
pub mod command;
pub mod environment;
pub mod exit;
pub mod files;
pub mod leftover;
pub mod oom;
pub mod pre_exec;
pub mod rank;
pub mod start;
pub mod usage;
