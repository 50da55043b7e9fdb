//! Errors of hosting, reaching and querying a store.

use std::io;
use std::time::Duration;

use crate::port_owner::PortOwner;

/// The reason why a store could not be hosted, reached or queried. Addresses are `host:port`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The port is in use; it is 0 if any free port would have done.
    #[error(
        "cannot host the store at {addr}: the port is in use{}; choose another with `--master-port`, or let \
         `--standalone` find a free one", by(.owner.as_ref())
    )]
    PortInUse {
        /// The address.
        addr: String,
        /// The process that uses the port, if it can be found.
        owner: Option<PortOwner>,
    },
    /// The connection is of no use any more: the store has ended or has closed it, or an earlier
    /// request was given up half way, so that the next reply would belong to that one.
    #[error("lost the store at {addr}: {err}")]
    Lost {
        /// The address.
        addr: String,
        /// The system's error.
        err: io::Error,
    },
    /// The keys did not appear before the timeout.
    #[error("the store at {addr} does not have {keys} after {} s", .timeout.as_secs_f64())]
    Missing {
        /// The address.
        addr: String,
        /// The awaited keys.
        keys: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The store did not answer before the timeout.
    #[error("the store at {addr} has not answered for {} s", .timeout.as_secs_f64())]
    Silent {
        /// The address.
        addr: String,
        /// The timeout.
        timeout: Duration,
    },
    /// There is no store: nobody can listen, nobody answers, or somebody who is not a store.
    #[error("{0}")]
    Other(String),
}

impl StoreError {
    /// Returns whether another connection might succeed.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Silent { .. })
    }

    /// Returns whether keys are missing, and the connection can be used further.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    pub(crate) fn missing(addr: &str, keys: &[impl AsRef<str>], timeout: Duration) -> Self {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| format!("`{}`", key.as_ref()))
            .collect();
        Self::Missing {
            addr: addr.to_owned(),
            keys: keys.join(", "),
            timeout,
        }
    }
}

/// The reason why a server refuses a request, and closes the connection on which it came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreRefusal(String);

impl StoreRefusal {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<io::Error> for StoreRefusal {
    fn from(err: io::Error) -> Self {
        Self(err.to_string())
    }
}

/// Returns ` by <owner>`, or nothing if the owner is unknown.
fn by(owner: Option<&PortOwner>) -> String {
    owner
        .map(|owner| format!(" by {owner}"))
        .unwrap_or_default()
}
