//! Watches the shared state over a connection of its own.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::rendezvous::envelope::{Content, open};
use tcpstore::{StoreClient, StoreError};

/// Pause after the bell rang although the state has not changed. Only unrelated clients cause that.
pub const FALSE_BELL: Duration = Duration::from_millis(100);

/// Returns the key of the bell, which is set when this version of the state is written.
pub fn bell(key: &str, version: u64) -> String {
    format!("{key}/rrun/version/{version}")
}

/// Reads the state whenever its bell rings, and every `period` in case that a bell was never rung.
pub async fn watch(
    mut client: StoreClient,
    key: String,
    period: Duration,
    seen: UnboundedSender<Result<Vec<u8>, StoreError>>,
) {
    let (mut last, mut has_rung) = (None, false);
    loop {
        let text = match client.peek(&[&key]).await {
            Ok(mut values) => values.pop().unwrap_or_default(),
            Err(err) => return drop(seen.send(Err(err))),
        };
        let version = if let Content::State(state) = open(&text) {
            state.version
        } else {
            0
        };
        let is_new = last.as_ref() != Some(&text);
        // An absent state is reported on every read until there is one.
        if (is_new || text.is_empty()) && seen.send(Ok(text.clone())).is_err() {
            return;
        }
        if has_rung && !is_new {
            tokio::time::sleep(FALSE_BELL).await;
        }
        last = Some(text);
        has_rung = match client.wait(&[&bell(&key, version + 1)], period).await {
            Ok(()) => true,
            Err(StoreError::Missing { .. }) => false,
            Err(err) => return drop(seen.send(Err(err))),
        };
    }
}
