//! The wire format of requests: an op byte, then its fields. Integers are little-endian; a text is
//! a `u64` length and its bytes.
//!
//! Requests are not framed: only reading a request tells where it ends. [`parse`] therefore returns
//! either a request and its length, or the number of bytes needed before parsing is worth another
//! attempt.

use crate::error::StoreRefusal;
use crate::limits::{MAX_KEY, MAX_KEYS, MAX_REQUEST, MAX_VALUE};

/// First field of a connection, after `VALIDATE` (torch: `validationMagicNumber`).
pub const MAGIC: u32 = 0x3C85_F7CE;

/// Size in bytes of a length, a count or a number.
const WORD: usize = 8;

const VALIDATE: u8 = 0x00;
const SET: u8 = 0x01;
const COMPARE_SET: u8 = 0x02;
const GET: u8 = 0x03;
const ADD: u8 = 0x04;
const CHECK: u8 = 0x05;
const WAIT: u8 = 0x06;
const NUM_KEYS: u8 = 0x07;
const DELETE: u8 = 0x08;
const APPEND: u8 = 0x09;
const MULTI_GET: u8 = 0x0a;
const MULTI_SET: u8 = 0x0b;
/// The only request of a client that waits.
pub const CANCEL_WAIT: u8 = 0x0c;
const PING: u8 = 0x0d;
const QUEUE_PUSH: u8 = 0x0e;
const QUEUE_POP: u8 = 0x0f;
const QUEUE_LEN: u8 = 0x10;
const LIST_KEYS: u8 = 0x11;
const BARRIER: u8 = 0x12;

/// One request, whose fields borrow from the input buffer (torch: `QueryType`). `BARRIER` is newer
/// than torch 2.11.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the sentence of each variant names its fields")]
pub enum StoreRequest<'a> {
    /// Handshake: states that the client speaks this protocol. No reply.
    Validate,
    /// Stores the value. No reply.
    Set { key: &'a [u8], value: &'a [u8] },
    /// Stores `desired` if the value is `expected`; an absent key equals an empty `expected`.
    CompareSet {
        key: &'a [u8],
        expected: &'a [u8],
        desired: &'a [u8],
    },
    /// Returns the value, empty if the key is absent.
    Get { key: &'a [u8] },
    /// Adds `delta` to the decimal number stored under the key.
    Add { key: &'a [u8], delta: i64 },
    /// Returns whether all of these keys exist.
    Check { keys: Vec<&'a [u8]> },
    /// Replies when all of these keys exist.
    Wait { keys: Vec<&'a [u8]> },
    /// Returns the number of keys, without queues.
    NumKeys,
    /// Deletes a key.
    Delete { key: &'a [u8] },
    /// Appends this value to the stored one. No reply.
    Append { key: &'a [u8], value: &'a [u8] },
    /// Returns the values in order, empty where a key is absent.
    MultiGet { keys: Vec<&'a [u8]> },
    /// Stores all of these values. No reply.
    MultiSet { pairs: Vec<(&'a [u8], &'a [u8])> },
    /// Cancels this client's `WAIT` or `BARRIER`.
    CancelWait,
    /// Returns the nonce.
    Ping { nonce: u32 },
    /// Appends a value to the queue. No reply.
    QueuePush { key: &'a [u8], value: &'a [u8] },
    /// Takes the first value from the queue.
    QueuePop { key: &'a [u8] },
    /// Returns the length of the queue.
    QueueLen { key: &'a [u8] },
    /// Returns all keys, without queues.
    ListKeys,
    /// Replies when `world` clients have sent it.
    Barrier { key: &'a [u8], world: i64 },
}

/// The result of parsing the bytes received so far.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A request, and its length in bytes.
    Request(StoreRequest<'a>, usize),
    /// An incomplete request; it cannot be complete before there are this many bytes.
    Needs(usize),
}

/// Parses the request at the start of `bytes`. Allocates memory for the bytes received, not for the
/// lengths announced.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, StoreRefusal> {
    let mut fields = FieldReader::of(bytes);
    let needed = match fields.request() {
        Ok(request) if fields.at <= MAX_REQUEST => return Ok(Parsed::Request(request, fields.at)),
        Ok(_) => fields.at,
        Err(ParseStop::Needs(needed)) => needed,
        Err(ParseStop::Refused(err)) => return Err(err),
    };
    if needed > MAX_REQUEST {
        Err(StoreRefusal::new(format!(
            "a request of {needed} bytes or more, expected at most {MAX_REQUEST}"
        )))
    } else {
        Ok(Parsed::Needs(needed))
    }
}

/// The reason why a field could not be read.
pub enum ParseStop {
    /// There have to be this many bytes.
    Needs(usize),
    /// They are not of this protocol, or exceed a limit.
    Refused(StoreRefusal),
}

/// Reads one field after the other.
pub struct FieldReader<'a> {
    bytes: &'a [u8],
    /// Length of the fields so far.
    pub at: usize,
}

impl<'a> FieldReader<'a> {
    /// Reads from the start of `bytes`.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn request(&mut self) -> Result<StoreRequest<'a>, ParseStop> {
        let [op] = self.array()?;
        Ok(match op {
            VALIDATE => self.magic()?,
            SET => StoreRequest::Set {
                key: self.key()?,
                value: self.value()?,
            },
            COMPARE_SET => StoreRequest::CompareSet {
                key: self.key()?,
                expected: self.value()?,
                desired: self.value()?,
            },
            GET => StoreRequest::Get { key: self.key()? },
            ADD => StoreRequest::Add {
                key: self.key()?,
                delta: self.number()?,
            },
            CHECK => StoreRequest::Check { keys: self.keys()? },
            WAIT => StoreRequest::Wait { keys: self.keys()? },
            NUM_KEYS => StoreRequest::NumKeys,
            DELETE => StoreRequest::Delete { key: self.key()? },
            APPEND => StoreRequest::Append {
                key: self.key()?,
                value: self.value()?,
            },
            MULTI_GET => StoreRequest::MultiGet { keys: self.keys()? },
            MULTI_SET => StoreRequest::MultiSet {
                pairs: self.list(2 * WORD, |fields| Ok((fields.key()?, fields.value()?)))?,
            },
            CANCEL_WAIT => StoreRequest::CancelWait,
            PING => StoreRequest::Ping {
                nonce: u32::from_le_bytes(self.array()?),
            },
            QUEUE_PUSH => StoreRequest::QueuePush {
                key: self.key()?,
                value: self.value()?,
            },
            QUEUE_POP => StoreRequest::QueuePop { key: self.key()? },
            QUEUE_LEN => StoreRequest::QueueLen { key: self.key()? },
            LIST_KEYS => StoreRequest::ListKeys,
            BARRIER => StoreRequest::Barrier {
                key: self.key()?,
                world: self.number()?,
            },
            op => return Err(ParseStop::refused(format!("unknown operation {op:#04x}"))),
        })
    }

    fn magic(&mut self) -> Result<StoreRequest<'a>, ParseStop> {
        match u32::from_le_bytes(self.array()?) {
            MAGIC => Ok(StoreRequest::Validate),
            other => Err(ParseStop::refused(format!(
                "the magic number is {other:#010x}, expected {MAGIC:#010x}"
            ))),
        }
    }

    fn keys(&mut self) -> Result<Vec<&'a [u8]>, ParseStop> {
        self.list(WORD, FieldReader::key)
    }

    /// Reads a count and that many items, each of at least `least` bytes.
    fn list<T>(
        &mut self,
        least: usize,
        item: impl Fn(&mut Self) -> Result<T, ParseStop>,
    ) -> Result<Vec<T>, ParseStop> {
        let count = self.bounded(MAX_KEYS, "keys in one request")?;
        let mut items = Vec::with_capacity(count.min((self.bytes.len() - self.at) / least));
        for left in (0..count).rev() {
            items.push(item(self).map_err(|stop| stop.with_more(left * least))?);
        }
        Ok(items)
    }

    fn key(&mut self) -> Result<&'a [u8], ParseStop> {
        let length = self.bounded(MAX_KEY, "bytes of a key")?;
        self.take(length)
    }

    fn value(&mut self) -> Result<&'a [u8], ParseStop> {
        self.text(MAX_VALUE)
    }

    /// Reads a text of at most `most` bytes.
    pub fn text(&mut self, most: usize) -> Result<&'a [u8], ParseStop> {
        let length = self.bounded(most, "bytes of a value")?;
        self.take(length)
    }

    /// Reads a length or a count; one that is too large is refused as soon as it arrives.
    fn bounded(&mut self, most: usize, what: &str) -> Result<usize, ParseStop> {
        let found = self.array().map(u64::from_le_bytes)?;
        let fits = usize::try_from(found).ok().filter(|found| *found <= most);
        fits.ok_or_else(|| ParseStop::refused(format!("{found} {what}, expected at most {most}")))
    }

    /// Reads a number.
    pub fn number(&mut self) -> Result<i64, ParseStop> {
        self.array().map(i64::from_le_bytes)
    }

    /// Reads so many bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseStop> {
        let bytes = self.bytes[self.at..]
            .first_chunk()
            .ok_or(ParseStop::Needs(self.at + N))?;
        self.at += N;
        Ok(*bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ParseStop> {
        let end = self.at + length;
        let bytes = self.bytes.get(self.at..end).ok_or(ParseStop::Needs(end))?;
        self.at = end;
        Ok(bytes)
    }
}

impl ParseStop {
    fn refused(text: String) -> ParseStop {
        ParseStop::Refused(StoreRefusal::new(text))
    }

    fn with_more(self, bytes: usize) -> ParseStop {
        match self {
            ParseStop::Needs(needed) => ParseStop::Needs(needed + bytes),
            refused => refused,
        }
    }
}

/// Returns a client's key as it is on the wire: torch's clients put a `/` before each.
pub fn wire_key(key: &str) -> Vec<u8> {
    [b"/", key.as_bytes()].concat()
}

/// Returns keys as they are on the wire, with a prefix that ends with a slash or is empty.
pub fn wire_keys<S: AsRef<str>>(keys: &[S], prefix: &str) -> Vec<Vec<u8>> {
    let wire = |key: &S| [b"/", prefix.as_bytes(), key.as_ref().as_bytes()].concat();
    keys.iter().map(wire).collect()
}

impl StoreRequest<'_> {
    /// The key under which clients count themselves (torch: `initKey_`), the only one without a
    /// leading slash.
    pub const COUNT: &'static [u8] = b"init/";

    /// Returns the number of keys, or of key-value pairs, of this request.
    pub fn items(&self) -> usize {
        match self {
            StoreRequest::Check { keys }
            | StoreRequest::Wait { keys }
            | StoreRequest::MultiGet { keys } => keys.len(),
            StoreRequest::MultiSet { pairs } => pairs.len(),
            _ => 1,
        }
    }

    /// Returns requests of at most `most` keys, or key-value pairs, that are together this one.
    pub fn parts(&self, most: usize) -> Vec<StoreRequest<'_>> {
        fn parts<'a, T: Clone>(
            items: &[T],
            most: usize,
            request: impl Fn(Vec<T>) -> StoreRequest<'a>,
        ) -> Vec<StoreRequest<'a>> {
            let parts = items.chunks(most).map(<[T]>::to_vec);
            parts.map(request).collect()
        }
        match self {
            StoreRequest::Check { keys } => parts(keys, most, |keys| StoreRequest::Check { keys }),
            StoreRequest::Wait { keys } => parts(keys, most, |keys| StoreRequest::Wait { keys }),
            StoreRequest::MultiGet { keys } => {
                parts(keys, most, |keys| StoreRequest::MultiGet { keys })
            }
            StoreRequest::MultiSet { pairs } => {
                parts(pairs, most, |pairs| StoreRequest::MultiSet { pairs })
            }
            one => vec![one.clone()],
        }
    }

    /// Appends the bytes of this request to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let to = &mut FieldWriter(out);
        match *self {
            StoreRequest::Validate => to.op(VALIDATE).raw(&MAGIC.to_le_bytes()),
            StoreRequest::Set { key, value } => to.op(SET).text(key).text(value),
            StoreRequest::CompareSet {
                key,
                expected,
                desired,
            } => to.op(COMPARE_SET).text(key).text(expected).text(desired),
            StoreRequest::Get { key } => to.op(GET).text(key),
            StoreRequest::Add { key, delta } => to.op(ADD).text(key).raw(&delta.to_le_bytes()),
            StoreRequest::Check { ref keys } => to.op(CHECK).texts(keys),
            StoreRequest::Wait { ref keys } => to.op(WAIT).texts(keys),
            StoreRequest::NumKeys => to.op(NUM_KEYS),
            StoreRequest::Delete { key } => to.op(DELETE).text(key),
            StoreRequest::Append { key, value } => to.op(APPEND).text(key).text(value),
            StoreRequest::MultiGet { ref keys } => to.op(MULTI_GET).texts(keys),
            StoreRequest::MultiSet { ref pairs } => pairs
                .iter()
                .fold(to.op(MULTI_SET).count(pairs.len()), |to, (key, value)| {
                    to.text(key).text(value)
                }),
            StoreRequest::CancelWait => to.op(CANCEL_WAIT),
            StoreRequest::Ping { nonce } => to.op(PING).raw(&nonce.to_le_bytes()),
            StoreRequest::QueuePush { key, value } => to.op(QUEUE_PUSH).text(key).text(value),
            StoreRequest::QueuePop { key } => to.op(QUEUE_POP).text(key),
            StoreRequest::QueueLen { key } => to.op(QUEUE_LEN).text(key),
            StoreRequest::ListKeys => to.op(LIST_KEYS),
            StoreRequest::Barrier { key, world } => {
                to.op(BARRIER).text(key).raw(&world.to_le_bytes())
            }
        };
    }
}

/// Writes one field after the other.
struct FieldWriter<'a>(&'a mut Vec<u8>);

impl FieldWriter<'_> {
    fn op(&mut self, op: u8) -> &mut Self {
        self.raw(&[op])
    }

    fn text(&mut self, text: &[u8]) -> &mut Self {
        self.count(text.len()).raw(text)
    }

    fn texts(&mut self, texts: &[&[u8]]) -> &mut Self {
        texts
            .iter()
            .fold(self.count(texts.len()), |to, text| to.text(text))
    }

    fn count(&mut self, count: usize) -> &mut Self {
        self.raw(&(count as u64).to_le_bytes())
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

#[cfg(test)]
pub(crate) mod tests;
