//! The leases of a rank: which blocks of episodes it runs, and how they are marked as written.
//!
//! ```text
//! queue ────── claim any ──► Leases ──► Claims ──► store (jobs::assign::lease)
//!   │ a job                 ▲ ▲
//!   ▼                       │ └── journal: may it be written? ─► it is written ─► block done
//! rollout ── the next ──────┘
//! ```
//! The rank's loop waits for the store, a fraction of a millisecond for each block. If the store
//! does not answer within a time limit, the rank gets an error instead of hanging.

use tcpstore::StoreError;

mod claims;
mod expected;
mod set;
#[cfg(test)]
pub(in crate::eval) mod testing;

pub use claims::{Claims, LeaseConfig};
pub use expected::BlockCut;
pub use set::Leases;

/// The reason why leases cannot be used any more.
#[derive(Debug, thiserror::Error)]
#[error("leases: {0}")]
pub struct LeaseError(String);

impl From<StoreError> for LeaseError {
    fn from(err: StoreError) -> Self {
        Self(err.to_string())
    }
}
