//! The leases of a rank: which blocks of episodes it runs, and how they are marked as written.
//!
//! ```text
//! job_queue ── claim any ──► Leases ──► LeaseClient (a thread) ──► store (jobs::assign::lease)
//!   │ a job                 ▲ ▲
//!   ▼                       │ └── journal: may it be written? ─► it is written ─► block done
//! rollout ── the next ──────┘
//! ```
//! The rank's loop waits for the lease client, a fraction of a millisecond for each block; the
//! lease client waits for the store. If the store does not answer within [`ANSWER`], the rank gets
//! an error instead of hanging.

use std::time::Duration;

use c10d::{DistError, StoreAddr};

mod client;
mod expected;
mod set;
#[cfg(test)]
pub(in crate::eval) mod testing;

pub use client::{LeaseClient, LeaseConfig};
pub use expected::BlockCut;
pub use set::Leases;

/// Time limit for an answer of the store: a busy machine may delay the launcher that serves it.
const ANSWER: Duration = Duration::from_secs(60);

/// The reason why leases cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The store refused the connection, or the connection is lost.
    #[error("leases: the store at {addr}: {err}")]
    Store {
        /// Address of the store.
        addr: StoreAddr,
        /// The error of the connection.
        #[source]
        err: DistError,
    },
    /// The store did not answer in time.
    #[error("leases: the store at {addr} has not answered for {} s", after.as_secs())]
    Silent {
        /// Address of the store.
        addr: StoreAddr,
        /// How long the rank waited.
        after: Duration,
    },
    /// The lease thread could not be started.
    #[error("leases: no thread: {0}")]
    Thread(#[source] std::io::Error),
}
