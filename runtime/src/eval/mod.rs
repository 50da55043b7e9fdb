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
//! Who calls whom:
//!
//! ```text
//! program ─┬─► setup      what is refused, chosen and locked before anything starts
//!          └─► rank ─┬─► rollout    the episodes of one job
//!                    ├─► lease      which episodes this rank may run (also called by rollout)
//!                    └─► monitor    the other ranks, the user, memory and GPU
//! ```

pub mod lease;
mod ledger;
mod monitor;
mod program;
mod rank;
mod rollout;
mod setup;
mod stop;

#[cfg(test)]
mod tests;

pub use program::main;
