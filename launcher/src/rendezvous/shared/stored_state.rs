//! The state of the shared rendezvous in the store: written by compare-and-set, watched over a
//! connection of its own, adopted from other nodes, and restored if another client deletes or
//! replaces it.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::rendezvous::envelope::{Content, open, read, seal};
use crate::rendezvous::shared::SharedRendezvous;
use crate::rendezvous::state::RendezvousState;
use tcpstore::{StoreClient, StoreError};

/// Pause after the bell rang although the state has not changed. Only unrelated clients cause that.
pub(super) const FALSE_BELL: Duration = Duration::from_millis(100);

/// Added to the version of a state that is restored after another client has deleted or replaced
/// it. It exceeds the number of writes that this node may have missed, so every other node takes
/// the restored state for newer than its own.
const PUT_BACK: u64 = 1 << 20;

impl SharedRendezvous<'_> {
    pub(super) async fn write(&mut self, next: RendezvousState) -> anyhow::Result<()> {
        let desired = seal(&next);
        let text = self
            .asker
            .compare_set(&self.key, &self.text, &desired)
            .await?;
        if text == desired {
            let bell = bell(&self.key, next.version);
            self.hold(desired, next);
            return Ok(self.asker.set(&bell, b"").await?);
        }
        if text == self.text {
            // The store answers like this if the key is absent. The next event leads to the same
            // write again.
            return self.put_back(&[]).await;
        }
        // Another node that was faster has increased the version; an older state was written by
        // some other client.
        if read(&self.key, &text)?.seen() < self.state.seen() {
            return self.put_back(&text).await;
        }
        self.take(&text)
    }

    /// Adopts the state that the watch has read, unless it is older than the one that this node
    /// wrote since.
    pub(super) async fn adopt(&mut self, text: &[u8]) -> anyhow::Result<()> {
        if self.is_newer(text)? || text == self.text {
            return self.take(text);
        }
        // Either the watch was late, or another client has deleted or replaced the state; this
        // connection reads which it is.
        let now = self
            .asker
            .peek(&[&self.key])
            .await?
            .pop()
            .unwrap_or_default();
        if self.is_newer(&now)? || now == self.text {
            self.take(&now)
        } else {
            self.put_back(&now).await
        }
    }

    fn is_newer(&self, text: &[u8]) -> anyhow::Result<bool> {
        Ok(!text.is_empty() && read(&self.key, text)?.seen() > self.state.seen())
    }

    fn take(&mut self, text: &[u8]) -> anyhow::Result<()> {
        let state = read(&self.key, text)?;
        self.hold(text.to_vec(), state);
        Ok(())
    }

    /// Keeps the state that the store has now.
    pub(super) fn hold(&mut self, text: Vec<u8>, state: RendezvousState) {
        (self.text, self.state) = (text, state);
        self.learn();
    }

    /// Restores the last known state in place of `found`; the store has no authentication, so
    /// another client may have written that. If another node was faster, its state is adopted.
    async fn put_back(&mut self, found: &[u8]) -> anyhow::Result<()> {
        if !std::mem::replace(&mut self.is_warned, true) {
            self.say(format!(
                "`{}` in the store was deleted or replaced; it is put back, but ranks may have lost \
                 keys too",
                self.key
            ));
        }
        let state = RendezvousState {
            version: self.state.version + PUT_BACK,
            ..self.state.clone()
        };
        let desired = seal(&state);
        let text = self.asker.compare_set(&self.key, found, &desired).await?;
        if text == desired {
            let bell = bell(&self.key, state.version);
            self.hold(desired, state);
            return Ok(self.asker.set(&bell, b"").await?);
        }
        // If the state has vanished meanwhile, the watch reports it.
        if text == found {
            Ok(())
        } else {
            self.take(&text)
        }
    }
}

/// Returns the key of the bell, which is set when this version of the state is written.
pub(super) fn bell(key: &str, version: u64) -> String {
    format!("{key}/rrun/version/{version}")
}

/// Reads the state whenever its bell rings, and every `period` in case that a bell was never rung.
pub(super) async fn watch(
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
