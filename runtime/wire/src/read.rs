//! Decodes msgpack. <https://github.com/msgpack/msgpack/blob/master/spec.md>

use bytes::Bytes;

use crate::{Dialect, Key, Value, WireError, dialect};

/// Maximum nesting depth of lists and maps; an observation has 4.
const DEEPEST: usize = 64;

/// Maximum number of values in a message. An observation has some dozens. A value takes up to 50
/// times the memory of its shortest encoding.
pub(super) const MOST_VALUES: usize = 1 << 16;

/// A decoded message with the dialect of its arrays.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedMessage {
    /// The decoded content.
    pub value: Value,
    /// The dialect of its arrays; `None` if it has no arrays.
    pub dialect: Option<Dialect>,
}

/// Decodes a whole message, with arrays in any dialect.
///
/// # Errors
/// Returns a [`WireError`] for the first error.
pub fn read(bytes: &Bytes) -> Result<DecodedMessage, WireError> {
    let mut decoder = MsgpackDecoder {
        bytes,
        at: 0,
        values_left: MOST_VALUES,
        dialect: None,
    };
    let value = decoder.value(0)?;
    match bytes.len() - decoder.at {
        0 => Ok(DecodedMessage {
            value,
            dialect: decoder.dialect,
        }),
        more => Err(WireError::Trailing { bytes: more }),
    }
}

struct MsgpackDecoder<'a> {
    bytes: &'a Bytes,
    at: usize,
    values_left: usize,
    dialect: Option<Dialect>,
}

impl MsgpackDecoder<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, WireError> {
        self.values_left = self
            .values_left
            .checked_sub(1)
            .ok_or(WireError::Values { most: MOST_VALUES })?;
        let marker = self.byte()?;
        Ok(match marker {
            0x00..=0x7f => Value::Int(i64::from(marker)),
            0x80..=0x8f => self.map(u32::from(marker & 0x0f), depth)?,
            0x90..=0x9f => self.list(u32::from(marker & 0x0f), depth)?,
            0xa0..=0xbf => self.text(usize::from(marker & 0x1f))?,
            0xc0 => Value::Nil,
            0xc1 => return Err(WireError::Format { at: self.at - 1 }),
            0xc2 => Value::Bool(false),
            0xc3 => Value::Bool(true),
            0xc4..=0xc6 => {
                let length = self.length(marker - 0xc4)?;
                Value::Bytes(self.take(length as usize)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(marker - 0xc7)?;
                self.extension(length as usize)?
            }
            0xca => Value::Float(f64::from(f32::from_be_bytes(self.number()?))),
            0xcb => Value::Float(f64::from_be_bytes(self.number()?)),
            0xcc => Value::Int(i64::from(self.byte()?)),
            0xcd => Value::Int(i64::from(u16::from_be_bytes(self.number()?))),
            0xce => Value::Int(i64::from(u32::from_be_bytes(self.number()?))),
            0xcf => Value::from(u64::from_be_bytes(self.number()?)),
            0xd0 => Value::Int(i64::from(i8::from_be_bytes(self.number()?))),
            0xd1 => Value::Int(i64::from(i16::from_be_bytes(self.number()?))),
            0xd2 => Value::Int(i64::from(i32::from_be_bytes(self.number()?))),
            0xd3 => Value::Int(i64::from_be_bytes(self.number()?)),
            0xd4..=0xd8 => self.extension(1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.length(marker - 0xd9)?;
                self.text(length as usize)?
            }
            0xdc | 0xdd => {
                let length = self.length(marker - 0xdc + 1)?;
                self.list(length, depth)?
            }
            0xde | 0xdf => {
                let length = self.length(marker - 0xde + 1)?;
                self.map(length, depth)?
            }
            0xe0..=0xff => Value::Int(i64::from(marker.cast_signed())),
        })
    }

    fn list(&mut self, length: u32, depth: usize) -> Result<Value, WireError> {
        let count = self.count("max_array_len", length, self.bytes.len(), depth)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::List(items))
    }

    fn map(&mut self, length: u32, depth: usize) -> Result<Value, WireError> {
        let count = self.count("max_map_len", length, self.bytes.len() / 2, depth)?;
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            members.push((key_of(key)?, value));
        }
        let Some((dialect, array)) = dialect::recognise(&members)? else {
            return Ok(Value::Map(members));
        };
        self.dialect.get_or_insert(dialect);
        Ok(array)
    }

    /// Checks a length and returns for how many items to reserve memory; each item takes at least
    /// one byte.
    fn count(
        &self,
        limit: &'static str,
        length: u32,
        most: usize,
        depth: usize,
    ) -> Result<usize, WireError> {
        let count = length as usize;
        if count > most {
            return Err(WireError::Length {
                limit,
                found: length,
                most,
            });
        }
        if depth >= DEEPEST {
            return Err(WireError::Depth { most: DEEPEST });
        }
        if count > self.bytes.len() - self.at {
            return Err(self.incomplete());
        }
        if count > self.values_left {
            return Err(WireError::Values { most: MOST_VALUES });
        }
        Ok(count)
    }

    fn text(&mut self, length: usize) -> Result<Value, WireError> {
        let bytes = self.slice(length)?;
        std::str::from_utf8(bytes)
            .map(|text| Value::Text(text.to_owned()))
            .map_err(|err| WireError::Text(undecodable(bytes, err)))
    }

    fn extension(&mut self, length: usize) -> Result<Value, WireError> {
        let kind = i8::from_be_bytes(self.number()?);
        Ok(Value::Ext(kind, self.take(length)?))
    }

    /// Reads a length of 1, 2 or 4 bytes.
    fn length(&mut self, width: u8) -> Result<u32, WireError> {
        Ok(match width {
            0 => u32::from(self.byte()?),
            1 => u32::from(u16::from_be_bytes(self.number()?)),
            _ => u32::from_be_bytes(self.number()?),
        })
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        let [byte] = self.number()?;
        Ok(byte)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let incomplete = self.incomplete();
        self.slice(N)?.try_into().map_err(|_| incomplete)
    }

    fn slice(&mut self, length: usize) -> Result<&[u8], WireError> {
        let end = self
            .at
            .checked_add(length)
            .filter(|end| *end <= self.bytes.len())
            .ok_or_else(|| self.incomplete())?;
        let from = std::mem::replace(&mut self.at, end);
        Ok(&self.bytes[from..end])
    }

    /// Takes bytes as a slice that shares the memory of the message.
    fn take(&mut self, length: usize) -> Result<Bytes, WireError> {
        let from = self.at;
        self.slice(length)?;
        Ok(self.bytes.slice(from..from + length))
    }

    fn incomplete(&self) -> WireError {
        WireError::Incomplete {
            bytes: self.bytes.len(),
        }
    }
}

fn key_of(value: Value) -> Result<Key, WireError> {
    match value {
        Value::Text(text) => Ok(Key::Text(text)),
        Value::Bytes(bytes) => Ok(Key::Bytes(bytes)),
        other => Err(WireError::MapKey {
            kind: other.type_name(),
        }),
    }
}

/// Returns the end of Python's error message about bytes that are not UTF-8.
fn undecodable(bytes: &[u8], err: std::str::Utf8Error) -> String {
    let at = err.valid_up_to();
    let (count, reason) = match err.error_len() {
        None => (bytes.len() - at, "unexpected end of data"),
        Some(count) if matches!(bytes[at], 0xc2..=0xf4) => (count, "invalid continuation byte"),
        Some(count) => (count, "invalid start byte"),
    };
    match count {
        1 => format!("byte 0x{:02x} in position {at}: {reason}", bytes[at]),
        _ => format!("bytes in position {at}-{}: {reason}", at + count - 1),
    }
}
