//! The program `eval`: runs the jobs of this rank, one after the other, and then writes the report.
//!
//! ```text
//! args, RankEnv ─► plan.json ─► device ─► store ─► work = assignment or leases, minus journals
//!     each job:  policy, environments, recorder
//!                two groups take turns: new episodes ─► reset; no action chunk left ─► policy;
//!                                       all others ─► step ─► record
//!                ended episode ─► recorder writes it ─► journal line, synced
//! all ranks have arrived ─► gather ─► rank 0 writes the report
//! ```

pub mod lease;
mod monitor;
mod rank;
mod rollout;
mod setup;

pub use rank::main;
