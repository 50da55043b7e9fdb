//! The state of the shared rendezvous in the store: written by compare-and-set, watched over a
//! connection of its own, adopted from other nodes, and restored if another client deletes or
//! replaces it.
//!
//! Torchrun keeps its own state under the same key: base64 of a Python pickle. Ours is base64 of a
//! pickle too, but one that Python cannot load, so that a torchrun agent fails with a reason
//! instead of waiting: it calls `int` on a text that explains the conflict, and Python's error
//! repeats that text. The state follows behind it as JSON.
//!
//! ```text
//! PROTO 4 · "builtins" · "int" · STACK_GLOBAL · "rrun keeps …" · TUPLE1 · REDUCE · STOP · {JSON…}
//! ```

use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinHandle, spawn};

use crate::rendezvous::shared::SharedRendezvous;
use crate::rendezvous::state::RendezvousState;
use tcpstore::{StoreClient, StoreError};

/// The text that Python's error repeats, cut after 200 characters: `ValueError: invalid literal for
/// int() with base 10: 'rrun keeps …'`.
const NOTICE: &str = "rrun keeps this rendezvous and torchrun cannot take part in it: start this node with rrun too, or \
                      give the launch another --rdzv-id";

/// The value that a torchrun agent writes before there is a state
/// (torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py, torch 2.11).
const SENTINEL: &[u8] = b"Y2FuaW1hZGFt";

/// Pause after the bell rang although the state has not changed. Only unrelated clients cause that.
pub(super) const FALSE_BELL: Duration = Duration::from_millis(100);

/// Added to the version of a state that is restored after another client has deleted or replaced
/// it. It exceeds the number of writes that this node may have missed, so every other node takes
/// the restored state for newer than its own.
const PUT_BACK: u64 = 1 << 20;

impl SharedRendezvous<'_> {
    pub(super) async fn write(&mut self, next: RendezvousState) -> anyhow::Result<()> {
        let before = self.text.clone();
        let Some(text) = self.replace(&before, next).await? else {
            return Ok(());
        };
        if text == before {
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

    /// Writes a state in place of `found`, and rings its bell. Returns the value after that if it
    /// is another one.
    async fn replace(
        &mut self,
        found: &[u8],
        state: RendezvousState,
    ) -> anyhow::Result<Option<Vec<u8>>> {
        let desired = seal(&state);
        let text = self.asker.compare_set(&self.key, found, &desired).await?;
        if text != desired {
            return Ok(Some(text));
        }
        let bell = bell(&self.key, state.version);
        self.hold(desired, state);
        self.asker.set(&bell, b"").await?;
        Ok(None)
    }

    /// Adopts the state that the watch has read, unless it is older than the one that this node
    /// wrote since.
    pub(super) async fn adopt(&mut self, text: &[u8]) -> anyhow::Result<()> {
        if self.is_newer(text)? || text == self.text {
            return self.take(text);
        }
        // Either the watch was late, or another client has deleted or replaced the state; this
        // connection reads which it is.
        let mut found = self.asker.peek(&[&self.key]).await?;
        let now = found.pop().unwrap_or_default();
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
        match self.replace(found, state).await? {
            // If the state has vanished meanwhile, the watch reports it.
            Some(text) if text != found => self.take(&text),
            _ => Ok(()),
        }
    }
}

/// Returns the key of the bell, which is set when this version of the state is written.
pub(super) fn bell(key: &str, version: u64) -> String {
    format!("{key}/rrun/version/{version}")
}

/// What a watch has read.
type Seen = Result<Vec<u8>, StoreError>;

/// Starts to [`watch`] the state. Returns the task and what it reads.
pub(super) fn begin_watch(
    client: StoreClient,
    key: String,
    period: Duration,
) -> (JoinHandle<()>, UnboundedReceiver<Seen>) {
    let (seen_by, seen) = unbounded_channel();
    (spawn(watch(client, key, period, seen_by)), seen)
}

/// Reads the state whenever its bell rings, and every `period` in case that a bell was never rung.
pub(super) async fn watch(
    mut client: StoreClient,
    key: String,
    period: Duration,
    seen: UnboundedSender<Seen>,
) {
    let (mut last, mut has_rung) = (None, false);
    loop {
        let text = match client.peek(&[&key]).await {
            Ok(mut values) => values.pop().unwrap_or_default(),
            Err(err) => return drop(seen.send(Err(err))),
        };
        let version = read(&key, &text).map_or(0, |state| state.version);
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

/// Encodes a state.
pub(super) fn seal(state: &RendezvousState) -> Vec<u8> {
    let json = serde_json::to_vec(state).expect("a state is names, numbers and lists");
    STANDARD.encode([&head(), json.as_slice()].concat()).into()
}

/// Reads the state that the store has under `key`.
///
/// # Errors
/// Returns an error if `text` is a state of torchrun or something else.
pub(super) fn read(key: &str, text: &[u8]) -> anyhow::Result<RendezvousState> {
    let bytes = STANDARD.decode(text).unwrap_or_default();
    let json = bytes.strip_prefix(head().as_slice());
    let is_pickle = text == SENTINEL || bytes.starts_with(b"\x80");
    ensure!(
        json.is_some() || !is_pickle,
        "torchrun keeps the rendezvous `{key}` and rrun cannot take part in it: start all its nodes \
         with rrun, or give this launch another --rdzv-id"
    );
    let state = json.and_then(|json| serde_json::from_slice(json).ok());
    let state = state.filter(RendezvousState::is_plausible);
    state.with_context(|| {
        format!("the value of `{key}` in the store is not a rendezvous; choose another --rdzv-id")
    })
}

/// Returns a pickle that calls `int(NOTICE)`. Python's pickletools.py has the opcodes.
fn head() -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).expect("the texts here are short");
        [&[0x8c, length], text.as_bytes()].concat() // SHORT_BINUNICODE
    };
    [
        b"\x80\x04".to_vec(),
        text("builtins"),
        text("int"),
        vec![0x93],
        text(NOTICE),
        vec![0x85, b'R', b'.'],
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rendezvous::state::NodeInfo;

    fn read_as(text: &[u8]) -> Result<RendezvousState, String> {
        let found = read("k", text);
        found.map_err(|err| err.to_string())
    }

    fn is_refused(text: &[u8], by: &str) {
        let err = read_as(text).expect_err("no state");
        assert!(err.starts_with(by), "{err}");
    }

    const UNKNOWN: &str = "the value of `k` in the store is not a rendezvous; ";

    #[test]
    fn a_state_comes_back() {
        let state = RendezvousState {
            version: 3,
            round: 2,
            ..RendezvousState::default()
        };
        assert_eq!(read_as(&seal(&state)), Ok(state));
    }

    #[test]
    fn numbers_that_no_launch_reaches_are_not_read() {
        let of = |change: &dyn Fn(&mut RendezvousState)| {
            let mut state = RendezvousState::default();
            change(&mut state);
            seal(&state)
        };
        let world = |nproc| {
            let addr = "a".to_owned();
            let info = NodeInfo {
                nproc,
                ..NodeInfo::default()
            };
            of(&|state| state.world = vec![(addr.clone(), info.clone())])
        };
        assert!(read_as(&world(8)).is_ok());
        for text in [
            world(0),
            world(usize::MAX),
            of(&|state| state.version = u64::MAX),
            of(&|state| state.round = u64::MAX),
            of(&|state| state.restarts = u32::MAX),
        ] {
            is_refused(&text, UNKNOWN);
        }
    }

    #[test]
    fn the_notice_is_one_that_python_repeats_whole() {
        assert!(NOTICE.len() < 190 && !NOTICE.contains('\''), "{NOTICE}");
    }

    #[test]
    fn torchrun_s_states_are_told_from_rubbish() {
        let torchrun = "torchrun keeps the rendezvous `k` and rrun cannot take part in it: ";
        is_refused(b"Y2FuaW1hZGFt", torchrun);
        is_refused(b"gASVaAEAAAAAAACMN3RvcmNo", torchrun);
        for rubbish in [&b""[..], b"abc", b"!!!!", b"YWJj"] {
            is_refused(rubbish, UNKNOWN);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_as_something(text: Vec<u8>) {
            let _ = read_as(&text);
        }
    }
}
