//! What a store is for its users: somebody who answers requests.

use std::time::Duration;

use crate::error::StoreError;
use crate::reply::StoreReply;
use crate::wire::StoreRequest;

/// Whoever answers requests: a server at the other end of a connection, or a table in memory.
pub trait Ask: Send + Sync {
    /// Makes a request and returns its reply, `None` if it has none. A `WAIT` is cancelled after
    /// `wait`, and answered with [`StoreReply::WaitCanceled`]; any other reply may take `answer`.
    ///
    /// # Errors
    /// Returns an error if there is no reply in time. The connection is of no use from then on, and
    /// further requests fail at once.
    fn ask(
        &self,
        request: &StoreRequest<'_>,
        wait: Duration,
        answer: Duration,
    ) -> Result<Option<StoreReply>, StoreError>;

    /// Returns the address, for messages.
    fn addr(&self) -> String;
}
