//! Why a store cannot be hosted, reached or asked.

use std::io;
use std::time::Duration;

use crate::store::port_owner::PortOwner;

/// Why a store cannot be hosted, reached or asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process listens there.
    #[error(
        "cannot host the store at {addr}: the port is in use{}; choose another with `--master-port`, or let \
         `--standalone` find a free one", by(.owner.as_ref())
    )]
    PortInUse {
        /// `host:port`; port 0 if any would have done.
        addr: String,
        /// Who has it, if that can be seen.
        owner: Option<PortOwner>,
    },
    /// Anything else that keeps it from listening.
    #[error("cannot host the store at {addr}")]
    Listen {
        /// `host:port`; port 0 if any would have done.
        addr: String,
        /// What the system says.
        #[source]
        err: io::Error,
    },
    /// No connection in the time given.
    #[error("cannot reach the store at {addr} within {} s", .timeout.as_secs_f64())]
    Unreachable {
        /// `host:port`.
        addr: String,
        /// The time given.
        timeout: Duration,
        /// The last of the tries.
        #[source]
        err: io::Error,
    },
    /// Something else listens there.
    #[error(
        "what listens at {addr}{} is not a store: it answered \"{}\"; is the port right?", held_by(.owner.as_ref()),
        .got.escape_ascii()
    )]
    NotAStore {
        /// `host:port`.
        addr: String,
        /// The beginning of the answer.
        got: [u8; 4],
        /// Who it is, if that can be seen.
        owner: Option<PortOwner>,
    },
    /// Something listens there, and does not say what.
    #[error(
        "what listens at {addr}{} has not answered for {:.1} s: is it a store, and is the port right?",
        held_by(.owner.as_ref()), .timeout.as_secs_f64()
    )]
    Mute {
        /// `host:port`.
        addr: String,
        /// The time given.
        timeout: Duration,
        /// Who it is, if that can be seen.
        owner: Option<PortOwner>,
    },
    /// The store is gone, or closed this connection.
    #[error("lost the store at {addr}")]
    Lost {
        /// `host:port`.
        addr: String,
        /// What the system says.
        #[source]
        err: io::Error,
    },
    /// The keys did not appear in the time given.
    #[error("the store at {addr} has not got {keys} after {} s", .timeout.as_secs_f64())]
    Missing {
        /// `host:port`.
        addr: String,
        /// Those that were waited for.
        keys: String,
        /// The time given.
        timeout: Duration,
    },
    /// The store did not answer in the time given.
    #[error("the store at {addr} has not answered for {} s", .timeout.as_secs_f64())]
    Silent {
        /// `host:port`.
        addr: String,
        /// The time given.
        timeout: Duration,
    },
    /// An earlier request was given up half way, so that the next reply would be the wrong one.
    #[error("the connection to the store at {addr} was given up in the middle of a request")]
    GivenUp {
        /// `host:port`.
        addr: String,
    },
}

/// `host:port`, with brackets where the host is an IPv6 address.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// ` by <owner>`, if it is known.
fn by(owner: Option<&PortOwner>) -> String {
    owner.map(|owner| format!(" by {owner}")).unwrap_or_default()
}

/// `, <owner>,`, if it is known.
fn held_by(owner: Option<&PortOwner>) -> String {
    owner.map(|owner| format!(", {owner},")).unwrap_or_default()
}
