//! Decodes msgpack.

use bytes::Bytes;

use crate::tokens::{Token, Tokens};
use crate::{Dialect, Key, Value, WireError, dialect};

/// Maximum nesting depth of lists and maps; an observation has 4.
const DEEPEST: usize = 64;

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
        tokens: Tokens::new(bytes),
        dialect: None,
    };
    let value = decoder.value(0)?;
    match decoder.tokens.bytes_left() {
        0 => Ok(DecodedMessage {
            value,
            dialect: decoder.dialect,
        }),
        more => Err(WireError::new(format!("{more} bytes follow the message"))),
    }
}

struct MsgpackDecoder<'a> {
    bytes: &'a Bytes,
    tokens: Tokens<'a>,
    dialect: Option<Dialect>,
}

impl MsgpackDecoder<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, WireError> {
        let token = self.tokens.next()?;
        if depth >= DEEPEST && matches!(token, Token::List(_) | Token::Map(_)) {
            let reason = format!("values are nested deeper than {DEEPEST}");
            return Err(WireError::new(reason));
        }
        Ok(match token {
            Token::Nil | Token::Extension => Value::Nil,
            Token::Bool(flag) => Value::Bool(flag),
            Token::Int(number) => Value::Int(number),
            Token::Large(number) => Value::Large(number),
            Token::Float(number) => Value::Float(number),
            Token::Text(bytes) => match str::from_utf8(bytes) {
                Ok(text) => Value::Text(text.to_owned()),
                Err(err) => return Err(WireError::new(format!("a string is not UTF-8: {err}"))),
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

    fn member(&mut self, depth: usize) -> Result<(Key, Value), WireError> {
        let key = match self.value(depth)? {
            Value::Text(text) => Key::Text(text),
            Value::Bytes(bytes) => Key::Bytes(bytes),
            other => {
                let reason = format!(
                    "a key of a map is {}, expected str or bytes",
                    other.type_name()
                );
                return Err(WireError::new(reason));
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
