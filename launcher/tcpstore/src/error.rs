//! Errors of hosting, reaching and querying a store.

use std::fmt::Display;
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
    /// There is no store: nobody can listen, nobody answers, or somebody who is not a store.
    #[error("{0}")]
    NoStore(String),
    /// The store has ended, or closed this connection.
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
    /// An earlier request was abandoned half way, so the next reply would belong to that one.
    #[error("the connection to the store at {addr} was given up in the middle of a request")]
    GivenUp {
        /// The address.
        addr: String,
    },
}

impl StoreError {
    /// Returns whether another connection might succeed.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. } | Self::Silent { .. } | Self::GivenUp { .. }
        )
    }

    /// Returns whether keys are missing, and the connection can be used further.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    pub(crate) fn missing(addr: &str, keys: &[&str], timeout: Duration) -> Self {
        let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
        Self::Missing {
            addr: addr.to_owned(),
            keys: keys.join(", "),
            timeout,
        }
    }

    pub(crate) fn unreachable(addr: &str, timeout: Duration, err: impl Display) -> Self {
        let seconds = timeout.as_secs_f64();
        Self::NoStore(format!(
            "cannot reach the store at {addr} within {seconds} s: {err}"
        ))
    }

    /// Says who does not answer as a store does; `owner` is the process that listens, if it can be
    /// found, and `said` what it did.
    pub(crate) fn stranger(addr: &str, owner: Option<&PortOwner>, said: &str) -> Self {
        let owner = owner.map(|owner| format!(", {owner},")).unwrap_or_default();
        Self::NoStore(format!("what listens at {addr}{owner} {said}"))
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

/// Returns `host:port`, with brackets if the host is an IPv6 address.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Returns ` by <owner>`, or nothing if the owner is unknown.
fn by(owner: Option<&PortOwner>) -> String {
    owner
        .map(|owner| format!(" by {owner}"))
        .unwrap_or_default()
}
