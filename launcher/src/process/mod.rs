//! A rank as a process: started in its own session, watched for its exit, and signalled and killed
//! as a process group.
//!
//! ```text
//! environment ─► command ─► start: pre_exec, exec ─► Rank ──peek──► Exit   the leader stays a
//!                                                     │                    zombie until `reap`, so
//!                                                     │                    its pid is not reused
//!                                                     └─signal─► its process group
//! leftover: what a rank left behind, found by session or because the kernel made it our child
//! ```

pub mod children;
pub mod command;
pub mod environment;
pub mod exit;
pub mod exits;
pub mod files;
pub mod leftover;
pub mod oom;
pub mod pre_exec;
pub mod rank;
pub mod search;
pub mod sessions;
pub mod start;
pub mod stat;
pub(crate) mod timed;
pub mod usage;
