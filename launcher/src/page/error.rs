//! Why there is no page.

use std::io;
use std::net::SocketAddr;

/// The reason why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The address cannot be used.
    #[error("cannot serve the page on {address} (--page-port): {err}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        err: io::Error,
    },
    /// The thread of the page cannot be started.
    #[error("cannot start the thread of the page: {0}")]
    Thread(io::Error),
}
