//! Leases, as a rank has them: which blocks it runs, and what becomes of them.
//!
//! ```text
//! agenda ── claim any ──► Leases ──► Clerk (a thread) ──► store      protocol: jobs::assign::lease
//!   │ a job                 ▲ ▲
//!   ▼                       │ └── journal: may this be written? ─► it is written ─► the block is done
//! rollout ── the next ──────┘
//! ```
//! The loop waits for the clerk, a fraction of a millisecond a block; the clerk waits for the store. A store that does not
//! answer is an error after [`ANSWER`], and does not hang the rank.

use std::time::Duration;

use c10d::{DistError, StoreAddr};

mod agenda;
mod book;
mod clerk;
mod expected;
#[cfg(test)]
mod testing;

pub use agenda::{Agenda, Bystander};
pub use book::Leases;
pub use clerk::{Clerk, Room};

/// How long the store may take to answer: the launcher that serves it may be held up by a busy machine.
const ANSWER: Duration = Duration::from_secs(60);

/// Why leases are of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The store refused or is gone.
    #[error("leases: the store at {addr}: {err}")]
    Store {
        /// Where it is.
        addr: StoreAddr,
        /// Why.
        #[source]
        err: DistError,
    },
    /// It did not answer.
    #[error("leases: the store at {addr} has not answered for {} s", after.as_secs())]
    Silent {
        /// Where it is.
        addr: StoreAddr,
        /// How long was waited.
        after: Duration,
    },
    /// No thread could be started.
    #[error("leases: no thread: {0}")]
    Thread(#[source] std::io::Error),
}
