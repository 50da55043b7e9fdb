//! A certificate: one file with everything that somebody else needs to check the result of a run,
//! and to run it again.
//!
//! ```text
//! plan, journals ─► make ─► contents ─► canonical JSON ─► SHA-256 ─► sample: which episodes are run again
//! file of a stranger ─► read (size, form, hash) ─┬─► check    coverage, seeds, rates, sample
//!                                                ├─► rebuild  jobs file, plan
//!                                                └─► identity files and packages of another run
//! ```
//! The hash covers `contents`. Which episodes are run again follows from the hash, so it is known only
//! after all results are.

pub mod canonical;
mod check;
mod identity;
mod make;
mod read;
mod rebuild;
pub mod sample;
mod schema;

pub use identity::differences;
use make::solved;
pub use make::{machines, make};
pub use read::{MAX_BYTES, PREFIX, is_certificate};
pub use rebuild::{jobs_file, only, plan, plan_of};
pub use schema::*;

/// The `schema` field of every certificate that this version writes.
pub const SCHEMA: &str = "rrun/certificate/1";

#[cfg(test)]
pub(crate) mod tests;
