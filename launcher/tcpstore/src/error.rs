//! Errors of hosting, reaching and querying a store.

use std::io;
use std::time::Duration;

use crate::port_owner::PortOwner;

/// The reason why a store could not be hosted, reached or queried.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The port is in use.
    #[error(
        "cannot host the store at {addr}: the port is in use{}; choose another with `--master-port`, or let \
         `--standalone` find a free one", by(.owner.as_ref())
    )]
    PortInUse {
        /// The address as `host:port`; the port is 0 if any free port would have done.
        addr: String,
        /// The process that uses the port, if it can be found.
        owner: Option<PortOwner>,
    },
    /// Listening failed for another reason.
    #[error("cannot host the store at {addr}")]
    Listen {
        /// The address as `host:port`; the port is 0 if any free port would have done.
        addr: String,
        /// The system's error.
        #[source]
        err: io::Error,
    },
    /// No connection could be made before the timeout.
    #[error("cannot reach the store at {addr} within {} s", .timeout.as_secs_f64())]
    Unreachable {
        /// The address as `host:port`.
        addr: String,
        /// The timeout.
        timeout: Duration,
        /// The error of the last attempt.
        #[source]
        err: io::Error,
    },
    /// The listener at this address is not a store.
    #[error(
        "what listens at {addr}{} is not a store: it answered \"{}\"; is the port right?", held_by(.owner.as_ref()),
        .got.escape_ascii()
    )]
    NotAStore {
        /// The address as `host:port`.
        addr: String,
        /// The first bytes of its answer.
        got: [u8; 4],
        /// The process that listens, if it can be found.
        owner: Option<PortOwner>,
    },
    /// The listener at this address did not answer the handshake.
    #[error(
        "what listens at {addr}{} has not answered for {:.1} s: is it a store, and is the port right?",
        held_by(.owner.as_ref()), .timeout.as_secs_f64()
    )]
    Mute {
        /// The address as `host:port`.
        addr: String,
        /// The timeout.
        timeout: Duration,
        /// The process that listens, if it can be found.
        owner: Option<PortOwner>,
    },
    /// The store has ended, or closed this connection.
    #[error("lost the store at {addr}")]
    Lost {
        /// The address as `host:port`.
        addr: String,
        /// The system's error.
        #[source]
        err: io::Error,
    },
    /// The keys did not appear before the timeout.
    #[error("the store at {addr} does not have {keys} after {} s", .timeout.as_secs_f64())]
    Missing {
        /// The address as `host:port`.
        addr: String,
        /// The awaited keys.
        keys: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The store did not answer before the timeout.
    #[error("the store at {addr} has not answered for {} s", .timeout.as_secs_f64())]
    Silent {
        /// The address as `host:port`.
        addr: String,
        /// The timeout.
        timeout: Duration,
    },
    /// An earlier request was abandoned half way, so the next reply would belong to that one.
    #[error("the connection to the store at {addr} was given up in the middle of a request")]
    GivenUp {
        /// The address as `host:port`.
        addr: String,
    },
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

/// Returns `, <owner>,`, or nothing if the owner is unknown.
fn held_by(owner: Option<&PortOwner>) -> String {
    owner.map(|owner| format!(", {owner},")).unwrap_or_default()
}
