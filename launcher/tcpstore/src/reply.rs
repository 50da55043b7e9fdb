//! The replies of the store and their encoding. They carry no tag: the client knows which request
//! they answer.

use std::sync::Arc;

use crate::limits::{Charged, MAX_APPENDED, StoreValue};
use crate::wire::{FieldReader, ParseStop, StoreRequest};

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
    /// Reads the reply to `request` from the start of `bytes`, and returns it with its length;
    /// `None` for a request that has no reply.
    pub fn parse(
        request: &StoreRequest<'_>,
        bytes: &[u8],
    ) -> Result<Option<(StoreReply, usize)>, ParseStop> {
        let mut fields = FieldReader::of(bytes);
        let reply = match request {
            StoreRequest::Validate
            | StoreRequest::Set { .. }
            | StoreRequest::Append { .. }
            | StoreRequest::MultiSet { .. }
            | StoreRequest::QueuePush { .. } => return Ok(None),
            StoreRequest::Check { .. } => StoreReply::Exist(fields.array()? == [READY]),
            StoreRequest::Wait { .. } | StoreRequest::Barrier { .. } | StoreRequest::CancelWait => {
                match fields.array()? {
                    [READY] => StoreReply::StopWaiting,
                    _ => StoreReply::WaitCanceled,
                }
            }
            StoreRequest::Get { .. } | StoreRequest::CompareSet { .. } => {
                StoreReply::Value(owned(fields.text(MAX_APPENDED)?))
            }
            StoreRequest::MultiGet { keys } => {
                // Nothing is copied before everything is there.
                let values = keys.iter().map(|_| fields.text(MAX_APPENDED));
                let values: Vec<&[u8]> = values.collect::<Result<_, _>>()?;
                StoreReply::Values(values.into_iter().map(owned).collect())
            }
            StoreRequest::Add { .. }
            | StoreRequest::NumKeys
            | StoreRequest::Delete { .. }
            | StoreRequest::QueueLen { .. } => StoreReply::Number(fields.number()?),
            StoreRequest::QueuePop { .. } => StoreReply::Popped(match fields.number()? {
                0 => None,
                length => Some((length, owned(fields.text(MAX_APPENDED)?))),
            }),
            StoreRequest::ListKeys => {
                let keys = (0..fields.number()?).map(|_| fields.text(MAX_APPENDED));
                let keys: Vec<&[u8]> = keys.collect::<Result<_, _>>()?;
                StoreReply::Keys(keys.into_iter().map(Arc::from).collect())
            }
            StoreRequest::Ping { .. } => StoreReply::Nonce(u32::from_le_bytes(fields.array()?)),
        };
        Ok(Some((reply, fields.at)))
    }

    /// Returns the value of a reply to `GET` or `COMPARE_SET`.
    pub fn into_value(self) -> Option<Vec<u8>> {
        match self {
            StoreReply::Value(value) => Some(bytes(value)),
            _ => None,
        }
    }

    /// Returns the values of a reply to `MULTI_GET`.
    pub fn into_values(self) -> Option<Vec<Vec<u8>>> {
        match self {
            StoreReply::Values(values) => Some(values.into_iter().map(bytes).collect()),
            _ => None,
        }
    }

    /// Returns the number of a reply that is one.
    pub fn into_number(self) -> Option<i64> {
        match self {
            StoreReply::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the memory that this reply does not share with the table, if it may be much.
    pub fn owned(&self) -> usize {
        match self {
            StoreReply::Keys(keys) => keys.len() * size_of::<Arc<[u8]>>(),
            _ => 0,
        }
    }

    /// Appends the bytes before the texts of this reply.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        match self {
            StoreReply::Exist(all) => out.push(if *all { READY } else { NOT_READY }),
            StoreReply::StopWaiting => out.push(READY),
            StoreReply::WaitCanceled => out.push(NOT_READY),
            StoreReply::Value(_) | StoreReply::Values(_) => {}
            StoreReply::Number(number) | StoreReply::Popped(Some((number, _))) => {
                out.extend_from_slice(&number.to_le_bytes());
            }
            StoreReply::Popped(None) => out.extend_from_slice(&0_i64.to_le_bytes()),
            StoreReply::Keys(keys) => out.extend_from_slice(&(keys.len() as u64).to_le_bytes()),
            StoreReply::Nonce(nonce) => out.extend_from_slice(&nonce.to_le_bytes()),
        }
    }

    /// Returns the texts of this reply, each of which is sent after its length.
    pub fn texts(&self) -> impl Iterator<Item = &[u8]> {
        let (values, keys): (&[StoreValue], &[Arc<[u8]>]) = match self {
            StoreReply::Value(value) | StoreReply::Popped(Some((_, value))) => {
                (std::slice::from_ref(value), &[])
            }
            StoreReply::Values(values) => (values, &[]),
            StoreReply::Keys(keys) => (&[], keys),
            _ => (&[], &[]),
        };
        let values = values.iter().map(|value| value.bytes.as_slice());
        values.chain(keys.iter().map(|key| &**key))
    }

    /// Appends the bytes of this reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_head(out);
        for text in self.texts() {
            out.extend_from_slice(&(text.len() as u64).to_le_bytes());
            out.extend_from_slice(text);
        }
    }
}

fn owned(value: &[u8]) -> StoreValue {
    Arc::new(Charged::from(value.to_vec()))
}

fn bytes(value: StoreValue) -> Vec<u8> {
    Arc::try_unwrap(value).map_or_else(|shared| shared.bytes.clone(), |owned| owned.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(reply: StoreReply) -> Vec<u8> {
        let mut out = Vec::new();
        reply.encode(&mut out);
        out
    }

    /// The expected bytes are in `spec/launcher.md` section 6.3, captured from torch 2.11.
    #[test]
    fn replies_are_those_captured_from_torch() {
        let value = |text: &str| owned(text.as_bytes());
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
