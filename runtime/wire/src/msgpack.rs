//! Decodes msgpack, and encodes values as msgpack, each in its shortest form, as msgpack-python
//! does. <https://github.com/msgpack/msgpack/blob/master/spec.md>

use bytes::Bytes;

use crate::{Dialect, Key, Value, dialect};

/// Maximum nesting depth of lists and maps; an observation has 4.
const DEEPEST: usize = 64;

/// Maximum number of values in a message. An observation has some dozens. A value takes up to 50
/// times the memory of its shortest encoding.
const MOST_VALUES: usize = 1 << 16;

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
/// Returns the reason for the first error.
pub fn read(bytes: &Bytes) -> Result<DecodedMessage, String> {
    let mut decoder = MsgpackDecoder {
        bytes,
        tokens: Tokens::new(bytes),
        dialect: None,
    };
    let value = decoder.value(0)?;
    match decoder.tokens.bytes_left() {
        0 => Ok(DecodedMessage {
            value,
            dialect: decoder.dialect,
        }),
        more => Err(format!("{more} bytes follow the message")),
    }
}

struct MsgpackDecoder<'a> {
    bytes: &'a Bytes,
    tokens: Tokens<'a>,
    dialect: Option<Dialect>,
}

impl MsgpackDecoder<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, String> {
        let token = self.tokens.next()?;
        if depth >= DEEPEST && matches!(token, Token::List(_) | Token::Map(_)) {
            return Err(format!("values are nested deeper than {DEEPEST}"));
        }
        Ok(match token {
            Token::Plain(value) => value,
            Token::Text(bytes) => match str::from_utf8(bytes) {
                Ok(text) => Value::Text(text.to_owned()),
                Err(err) => return Err(format!("a string is not UTF-8: {err}")),
            },
            // A slice shares the memory of the message.
            Token::Bytes(bytes) => Value::Bytes(self.bytes.slice_ref(bytes)),
            Token::List(items) => {
                let items = (0..items).map(|_| self.value(depth + 1));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            Token::Map(members) => {
                let members: Result<Vec<_>, _> =
                    (0..members).map(|_| self.member(depth + 1)).collect();
                let members = members?;
                match dialect::recognise(&members)? {
                    None => Value::Map(members),
                    Some((dialect, array)) => {
                        self.dialect.get_or_insert(dialect);
                        array
                    }
                }
            }
        })
    }

    fn member(&mut self, depth: usize) -> Result<(Key, Value), String> {
        let key = match self.value(depth)? {
            Value::Text(text) => Key::Text(text),
            Value::Bytes(bytes) => Key::Bytes(bytes),
            other => {
                return Err(format!(
                    "a key of a map is {}, expected str or bytes",
                    other.type_name()
                ));
            }
        };
        Ok((key, self.value(depth)?))
    }
}

/// Returns the string at `key` of the map that the message encodes, as far as the message can be
/// read, so that a server can check it first. Of several entries with that key the last one counts,
/// as for [`Value::get`]. Builds no values, copies nothing, and reads at most as many values as
/// [`read`]; the contents of arrays and strings are skipped.
pub fn peek_text<'a>(message: &'a [u8], key: &str) -> Option<&'a str> {
    let mut tokens = Tokens::new(message);
    let Ok(Token::Map(members)) = tokens.next() else {
        return None;
    };
    let mut found = None;
    for _ in 0..members {
        let Some((name, value)) = whole(&mut tokens).zip(whole(&mut tokens)) else {
            break;
        };
        if matches!(name, Token::Text(name) if name == key.as_bytes()) {
            found = match value {
                Token::Text(text) => str::from_utf8(text).ok(),
                _ => None,
            };
        }
    }
    found
}

/// Reads a value and skips what is in it.
fn whole<'a>(tokens: &mut Tokens<'a>) -> Option<Token<'a>> {
    let token = tokens.next().ok()?;
    let mut left = token.children();
    while left > 0 {
        left = left - 1 + tokens.next().ok()?.children();
    }
    Some(token)
}

/// A value in a message; the contents of lists and maps follow it.
enum Token<'a> {
    /// A value without contents. One of an extension type is nil, because nothing here uses them.
    Plain(Value),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    List(u32),
    Map(u32),
}

impl Token<'_> {
    /// Returns how many values follow that belong to this one.
    fn children(&self) -> u64 {
        match self {
            Self::List(items) => u64::from(*items),
            Self::Map(members) => u64::from(*members) * 2,
            _ => 0,
        }
    }
}

/// The tokens of a message, of which there are at most [`MOST_VALUES`].
struct Tokens<'a> {
    message: &'a [u8],
    /// What has not been read yet.
    rest: &'a [u8],
    values_left: usize,
}

impl<'a> Tokens<'a> {
    fn new(message: &'a [u8]) -> Self {
        Self {
            message,
            rest: message,
            values_left: MOST_VALUES,
        }
    }

    /// Returns the number of bytes that have not been read.
    fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    /// Reads the next token. The list or map that it begins may promise more values than follow,
    /// but no more than there may be.
    fn next(&mut self) -> Result<Token<'a>, String> {
        let is_too_much = || format!("the message has more than {MOST_VALUES} values");
        self.values_left = self.values_left.checked_sub(1).ok_or_else(is_too_much)?;
        let [marker] = self.number()?;
        let token = match marker {
            0x00..=0x7f => Token::Plain(Value::Int(i64::from(marker))),
            0x80..=0x8f => Token::Map(u32::from(marker & 0x0f)),
            0x90..=0x9f => Token::List(u32::from(marker & 0x0f)),
            0xa0..=0xbf => Token::Text(self.take(u32::from(marker & 0x1f))?),
            0xc0 => Token::Plain(Value::Nil),
            0xc1 => {
                let at = self.message.len() - self.rest.len() - 1;
                return Err(format!("not msgpack: byte {at} is 0xc1"));
            }
            0xc2 | 0xc3 => Token::Plain(Value::Bool(marker == 0xc3)),
            0xc4..=0xc6 => {
                let length = self.length(marker - 0xc4)?;
                Token::Bytes(self.take(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(marker - 0xc7)?;
                self.extension(length)?
            }
            0xca => Token::Plain(Value::Float(f64::from(f32::from_be_bytes(self.number()?)))),
            0xcb => Token::Plain(Value::Float(f64::from_be_bytes(self.number()?))),
            0xcc..=0xce => Token::Plain(Value::Int(i64::from(self.length(marker - 0xcc)?))),
            0xcf => Token::Plain(u64::from_be_bytes(self.number()?).into()),
            0xd0 => Token::Plain(Value::Int(i64::from(i8::from_be_bytes(self.number()?)))),
            0xd1 => Token::Plain(Value::Int(i64::from(i16::from_be_bytes(self.number()?)))),
            0xd2 => Token::Plain(Value::Int(i64::from(i32::from_be_bytes(self.number()?)))),
            0xd3 => Token::Plain(Value::Int(i64::from_be_bytes(self.number()?))),
            0xd4..=0xd8 => self.extension(1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.length(marker - 0xd9)?;
                Token::Text(self.take(length)?)
            }
            0xdc | 0xdd => Token::List(self.length(marker - 0xdc + 1)?),
            0xde | 0xdf => Token::Map(self.length(marker - 0xde + 1)?),
            0xe0..=0xff => Token::Plain(Value::Int(i64::from(marker.cast_signed()))),
        };
        // Each value takes at least one byte.
        if token.children() > self.rest.len() as u64 {
            return Err(self.incomplete());
        }
        if token.children() > self.values_left as u64 {
            return Err(is_too_much());
        }
        Ok(token)
    }

    fn extension(&mut self, length: u32) -> Result<Token<'a>, String> {
        let [_kind] = self.number()?;
        self.take(length)?;
        Ok(Token::Plain(Value::Nil))
    }

    /// Reads an unsigned number of 1, 2 or 4 bytes.
    fn length(&mut self, width: u8) -> Result<u32, String> {
        Ok(match width {
            0 => u32::from(u8::from_be_bytes(self.number()?)),
            1 => u32::from(u16::from_be_bytes(self.number()?)),
            _ => u32::from_be_bytes(self.number()?),
        })
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (number, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| self.incomplete())?;
        self.rest = rest;
        Ok(*number)
    }

    fn take(&mut self, length: u32) -> Result<&'a [u8], String> {
        let split = self.rest.split_at_checked(length as usize);
        let (taken, rest) = split.ok_or_else(|| self.incomplete())?;
        self.rest = rest;
        Ok(taken)
    }

    fn incomplete(&self) -> String {
        let bytes = self.message.len();
        format!("the message is {bytes} bytes long and ends within a value")
    }
}

/// Returns the bytes of a message, with arrays in the form of `dialect`.
///
/// # Panics
/// Panics if a string, a list or an array has 4 GiB or more.
pub fn write(value: &Value, dialect: Dialect) -> Vec<u8> {
    let mut encoder = MsgpackEncoder {
        out: Vec::with_capacity(64),
        dialect,
    };
    encoder.value(value);
    encoder.out
}

struct MsgpackEncoder {
    out: Vec<u8>,
    dialect: Dialect,
}

impl MsgpackEncoder {
    fn value(&mut self, value: &Value) {
        match value {
            Value::Nil => self.out.push(0xc0),
            Value::Bool(flag) => self.out.push(0xc2 + u8::from(*flag)),
            Value::Int(number) => self.int(*number),
            Value::Large(number) => self.marked(0xcf, &number.to_be_bytes()),
            Value::Float(number) => self.marked(0xcb, &number.to_be_bytes()),
            Value::Text(text) => self.text(text),
            Value::Bytes(bytes) => self.bytes(bytes),
            Value::List(items) => {
                self.head(0x90, 16, [0, 0xdc, 0xdd], items.len());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Map(members) => {
                self.head(0x80, 16, [0, 0xde, 0xdf], members.len());
                for (key, value) in members {
                    match key {
                        Key::Text(text) => self.text(text),
                        Key::Bytes(bytes) => self.bytes(bytes),
                    }
                    self.value(value);
                }
            }
            Value::Array(array) => self.value(&dialect::map_of(array, self.dialect)),
        }
    }

    fn text(&mut self, text: &str) {
        self.head(0xa0, 32, [0xd9, 0xda, 0xdb], text.len());
        self.out.extend_from_slice(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.head(0, 0, [0xc4, 0xc5, 0xc6], bytes.len());
        self.out.extend_from_slice(bytes);
    }

    fn int(&mut self, number: i64) {
        match number {
            -32..=-1 => self.out.push((number as i8).cast_unsigned()),
            0..=0x7f => self.out.push(number as u8),
            0x80..=0xff => self.marked(0xcc, &[number as u8]),
            0x100..=0xffff => self.marked(0xcd, &(number as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.marked(0xce, &(number as u32).to_be_bytes()),
            0x1_0000_0000.. => self.marked(0xcf, &number.to_be_bytes()),
            -0x80..=-33 => self.marked(0xd0, &(number as i8).to_be_bytes()),
            -0x8000..=-0x81 => self.marked(0xd1, &(number as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => self.marked(0xd2, &(number as i32).to_be_bytes()),
            ..=-0x8000_0001 => self.marked(0xd3, &number.to_be_bytes()),
        }
    }

    /// Writes a length into the marker itself if it is less than `below`, or after a marker for
    /// lengths of 1, 2 and 4 bytes; 0 is none.
    fn head(&mut self, fixed: u8, below: usize, [one, two, four]: [u8; 3], length: usize) {
        match length {
            _ if length < below => self.out.push(fixed | length as u8),
            0..=0xff if one > 0 => self.marked(one, &[length as u8]),
            0..=0xffff => self.marked(two, &(length as u16).to_be_bytes()),
            _ => {
                let length = u32::try_from(length).expect("a message is shorter than 4 GiB");
                self.marked(four, &length.to_be_bytes());
            }
        }
    }

    fn marked(&mut self, marker: u8, bytes: &[u8]) {
        self.out.push(marker);
        self.out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_the_outermost_map_is_found_wherever_it_stands() {
        // {"data": {"token": "no", "x": [1, 2]}, "token": "yes"}
        let message = b"\x82\xa4data\x82\xa5token\xa2no\xa1x\x92\x01\x02\xa5token\xa3yes";
        assert_eq!(peek_text(message, "token"), Some("yes"));
        assert_eq!(peek_text(message, "data"), None, "a map is no text");
        assert_eq!(peek_text(message, "x"), None);
    }

    #[test]
    fn what_stands_before_damage_is_found_and_what_stands_behind_it_is_not() {
        assert_eq!(peek_text(b"\x82\xa1t\xa1a\xa1x\xc1", "t"), Some("a"));
        assert_eq!(peek_text(b"\x82\xa1x\xc1\xa1t\xa1a", "t"), None);
        assert_eq!(peek_text(b"\x81\xa1t\xdb\xff\xff\xff\xff", "t"), None);
        assert_eq!(peek_text(b"", "t"), None);
        assert_eq!(peek_text(b"\x91\xa1t", "t"), None);
    }

    #[test]
    fn a_message_that_promises_billions_of_values_is_given_up() {
        assert_eq!(peek_text(b"\xdf\xff\xff\xff\xff\xa1t\xa1a", "t"), None);
        let lists = [
            &b"\x82\xa1x"[..],
            &b"\xdd\xff\xff\xff\xff".repeat(100_000),
            b"\xa1t\xa1a",
        ]
        .concat();
        assert_eq!(peek_text(&lists, "t"), None);
    }
}
