//! Why nodes cannot meet.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::rendezvous::reach::Tries;
use crate::store::StoreError;

/// Why nodes cannot meet, or cannot stay together.
#[derive(Debug, thiserror::Error)]
pub enum RendezvousError {
    /// No store where it should be.
    #[error("cannot reach the rendezvous at {endpoint} within {} s: {tries}", .timeout.as_secs_f64())]
    Unreachable {
        /// `host:port`.
        endpoint: String,
        /// The time given.
        timeout: Duration,
        /// What was tried.
        tries: Tries,
    },
    /// `store_type=file`.
    #[error("cannot meet by the file `{}`", .path.display())]
    File {
        /// The endpoint.
        path: PathBuf,
        /// What the system says.
        #[source]
        err: io::Error,
    },
    /// The store is gone, or says something strange.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nodes are missing.
    #[error("of {wanted} nodes only {came} came within {} s", .timeout.as_secs_f64())]
    TimedOut {
        /// Nodes that came.
        came: usize,
        /// Nodes needed.
        wanted: usize,
        /// The time given.
        timeout: Duration,
    },
    /// Nodes of a static launch are missing.
    #[error("no word from node {missing} of {wanted} within {} s", .timeout.as_secs_f64())]
    Missing {
        /// Node ranks.
        missing: String,
        /// Nodes needed.
        wanted: usize,
        /// The time given.
        timeout: Duration,
    },
    /// Two launchers say that they are the same node.
    #[error("--node-rank {rank} is taken by another launcher ({by}); each node needs a rank of its own")]
    TakenRank {
        /// The rank.
        rank: usize,
        /// Its host name, pid and id.
        by: String,
    },
    /// The launch with this id has ended.
    #[error("the launch with the id `{run_id}` is over ({how}); take another --rdzv-id")]
    Closed {
        /// `--rdzv-id`.
        run_id: String,
        /// How it ended.
        how: String,
    },
    /// The key of the state holds something that is not ours.
    #[error(
        "torchrun keeps the rendezvous `{0}` and rrun cannot take part in it: start all its nodes with rrun, or give this \
         launch another --rdzv-id"
    )]
    Torchrun(String),
    /// The key of the state holds something that nobody of us wrote.
    #[error("the store has something under `{0}` that is no rendezvous; take another --rdzv-id")]
    Unknown(String),
    /// What torch's own agent on node 0 wrote cannot be read.
    #[error("`{key}` in the store is no {what}: {found}")]
    Malformed {
        /// Its key.
        key: String,
        /// What it should be.
        what: &'static str,
        /// The text.
        found: String,
    },
}
