//! The replies of the store and their encoding. They carry no tag: the client knows which request
//! they answer.

use std::sync::Arc;

use crate::outbox::Outbox;
use crate::value::StoreValue;

/// One-byte reply (torch: `CheckResponseType::READY` and `WaitResponseType::STOP_WAITING`).
pub const READY: u8 = 0;
/// One-byte reply (torch: `CheckResponseType::NOT_READY` and `WaitResponseType::WAIT_CANCELED`).
pub const NOT_READY: u8 = 1;

/// The reply to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// Answers `CHECK`: whether all keys exist.
    Exist(bool),
    /// Answers `WAIT` and `BARRIER` when the wait is over.
    StopWaiting,
    /// Answers `CANCEL_WAIT`.
    WaitCanceled,
    /// Answers `COMPARE_SET` and `GET` with the value.
    Value(StoreValue),
    /// Answers `MULTI_GET` with the values in order.
    Values(Vec<StoreValue>),
    /// Answers `ADD`, `GETNUMKEYS`, `DELETE_KEY` and `QUEUE_LEN`.
    Number(i64),
    /// Answers `QUEUE_POP` with the first value, and the number of values before it was taken.
    Popped(Option<(i64, StoreValue)>),
    /// Answers `LIST_KEYS`.
    Keys(Vec<Arc<[u8]>>),
    /// Answers `PING` with the client's number.
    Nonce(u32),
}

impl StoreReply {
    /// Appends the bytes of this reply to the outbox.
    pub fn encode(&self, out: &mut Outbox) {
        match self {
            StoreReply::Exist(all) => out.raw(&[if *all { READY } else { NOT_READY }]),
            StoreReply::StopWaiting => out.raw(&[READY]),
            StoreReply::WaitCanceled => out.raw(&[NOT_READY]),
            StoreReply::Value(value) => out.value(value),
            StoreReply::Values(values) => values.iter().for_each(|value| out.value(value)),
            StoreReply::Number(number) => out.raw(&number.to_le_bytes()),
            StoreReply::Popped(None) => out.raw(&0_i64.to_le_bytes()),
            StoreReply::Popped(Some((length, value))) => {
                out.raw(&length.to_le_bytes());
                out.value(value);
            }
            StoreReply::Keys(keys) => {
                out.raw(&(keys.len() as u64).to_le_bytes());
                keys.iter().for_each(|key| out.key(key));
            }
            StoreReply::Nonce(nonce) => out.raw(&nonce.to_le_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(reply: StoreReply) -> Vec<u8> {
        let mut out = Outbox::default();
        reply.encode(&mut out);
        out.to_bytes()
    }

    /// The expected bytes are in `spec/launcher.md` section 6.3, captured from torch 2.11.
    #[test]
    fn replies_are_those_captured_from_torch() {
        let value = |text: &str| Arc::new(text.as_bytes().to_vec());
        let table: [(StoreReply, &[u8]); 9] = [
            (StoreReply::Nonce(0x2e83), b"\x83\x2e\0\0"),
            (StoreReply::StopWaiting, b"\0"),
            (StoreReply::WaitCanceled, b"\x01"),
            (StoreReply::Exist(false), b"\x01"),
            (StoreReply::Value(value("v")), b"\x01\0\0\0\0\0\0\0v"),
            (StoreReply::Number(3), b"\x03\0\0\0\0\0\0\0"),
            (
                StoreReply::Values(vec![value("v1"), value("v22")]),
                b"\x02\0\0\0\0\0\0\0v1\x03\0\0\0\0\0\0\0v22",
            ),
            (
                StoreReply::Popped(Some((2, value("a")))),
                b"\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0a",
            ),
            (StoreReply::Popped(None), b"\0\0\0\0\0\0\0\0"),
        ];
        for (reply, wire) in table {
            assert_eq!(bytes(reply), wire);
        }
    }

    #[test]
    fn keys_are_counted_and_each_has_its_length() {
        let keys = vec![Arc::from(&b"/a"[..]), Arc::from(&b""[..])];
        assert_eq!(
            bytes(StoreReply::Keys(keys)),
            b"\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/a\0\0\0\0\0\0\0\0"
        );
    }
}
