//! Waits for what may not be there.

use std::future::pending;

/// Waits for something that may not be there; then for ever. Cancel-safe if the future is.
pub async fn if_any<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}
