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

mod busy;
#[cfg(test)]
mod cable;
pub(crate) mod console;
pub(crate) mod device;
mod ending;
mod exporter;
pub(crate) mod failure;
mod film;
mod group;
mod heartbeat;
mod history;
mod job;
pub(crate) mod latency;
mod launch;
pub mod lease;
mod live;
mod meter;
mod outcome;
mod peers;
mod policy_files;
mod policy_thread;
mod progress;
mod rank;
mod ready;
mod recording;
mod rollout;
mod schedule;
mod seating;
mod settings;
mod stop;
mod tally;
mod view;

pub use rank::main;
