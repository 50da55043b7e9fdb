//! Errors of the rendezvous.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tcpstore::StoreError;

/// The reason why nodes cannot meet or cannot stay together.
#[derive(Debug, thiserror::Error)]
pub enum RendezvousError {
    /// The file of `store_type=file` could not be used.
    #[error("cannot meet by the file `{}`", .path.display())]
    File {
        /// The path given as endpoint.
        path: PathBuf,
        /// The system's error.
        #[source]
        err: io::Error,
    },
    /// The store has ended, or sent an unexpected answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too few nodes came.
    #[error("only {came} of {wanted} nodes joined within {} s", .timeout.as_secs_f64())]
    TimedOut {
        /// Number of nodes that came.
        came: usize,
        /// Number of nodes needed.
        wanted: usize,
        /// The timeout.
        timeout: Duration,
    },
    /// The host is lost, and the nodes that are left cannot elect another.
    #[error(
        "the host of the rendezvous at {host} is lost, and no other was elected within {} s: that \
         takes more than half of the {of} nodes of the last round, or half with its host", .timeout.as_secs_f64()
    )]
    NoHost {
        /// Address and port of the lost host.
        host: String,
        /// Number of nodes that elect.
        of: usize,
        /// The timeout.
        timeout: Duration,
    },
    /// The store at the endpoint is not that of the launch any more, and no node is known to have
    /// that.
    #[error(
        "the host of the rendezvous is not at {endpoint} any more, and no other was found within \
         {} s", .timeout.as_secs_f64()
    )]
    Nowhere {
        /// The endpoint of the launch.
        endpoint: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The nodes that came are a minority of the launch.
    #[error(
        "only {came} of the {of} nodes of the last round are left after {} s, and the others may go \
         on without them", .timeout.as_secs_f64()
    )]
    Minority {
        /// Number of nodes that came.
        came: usize,
        /// Number of nodes of the last round.
        of: usize,
        /// The timeout.
        timeout: Duration,
    },
    /// Nodes of a static launch did not come.
    #[error("{} of {wanted} did not join within {} s", nodes(.missing), .timeout.as_secs_f64())]
    Missing {
        /// Their node ranks.
        missing: String,
        /// Number of nodes needed.
        wanted: usize,
        /// The timeout.
        timeout: Duration,
    },
    /// Two launchers have the same node rank.
    #[error(
        "--node-rank {rank} is taken by another launcher ({by}); each node needs a rank of its own"
    )]
    TakenRank {
        /// The node rank.
        rank: usize,
        /// The host name, pid and id of the other launcher.
        by: String,
    },
    /// A launch with this run id has ended already.
    #[error("the launch with the id `{run_id}` has ended ({how}); choose another --rdzv-id")]
    Closed {
        /// The run id, from `--rdzv-id`.
        run_id: String,
        /// How it ended.
        how: String,
    },
    /// The key of the state holds a state of torchrun.
    #[error(
        "torchrun keeps the rendezvous `{0}` and rrun cannot take part in it: start all its nodes with rrun, or give this \
         launch another --rdzv-id"
    )]
    Torchrun(String),
    /// The key of the state holds a value that neither rrun nor torchrun wrote.
    #[error("the value of `{0}` in the store is not a rendezvous; choose another --rdzv-id")]
    Unknown(String),
    /// A value that torch's own agent on node 0 wrote cannot be parsed.
    #[error("`{key}` in the store is `{found}`, expected {what}")]
    Malformed {
        /// Its key.
        key: String,
        /// What it should be.
        what: &'static str,
        /// The value as text.
        found: String,
    },
}

/// Returns node ranks, separated by commas, with their noun.
pub(super) fn nodes(ranks: &str) -> String {
    match ranks.contains(',') {
        true => format!("nodes {ranks}"),
        false => format!("node {ranks}"),
    }
}
