//! A rank as a process: started in its own session, watched for its exit, and signalled and killed
//! as a process group.
//!
//! ```text
//! command ─► rank: pre_exec, exec ─► Rank ──peek──► Exit   the leader stays a
//!                                     │                    zombie until `reap`, so
//!                                     │                    its pid is not reused
//!                                     └─signal─► its process group
//! leftover: what a rank left behind, found by session or because the kernel made it our child
//! ```

pub mod command;
pub mod exit;
pub mod leftover;
pub mod pre_exec;
pub mod proc;
pub mod rank;
pub(crate) mod timed;
