//! Reads a single string from a message without decoding the message, so that a server can check it
//! first.

/// Returns the string at `key` of the map that the message encodes, as far as the message can be
/// read. Of several entries with that key the last one counts, as for [`crate::Value::get`]. Builds
/// no values, copies nothing, and reads at most [`MOST_VALUES`](crate::read::MOST_VALUES) values;
/// the contents of arrays and strings are skipped.
pub fn peek_text<'a>(message: &'a [u8], key: &str) -> Option<&'a str> {
    let mut reader = Peek {
        bytes: message,
        values_left: crate::read::MOST_VALUES,
    };
    let PeekedToken::Map(members) = reader.token()? else {
        return None;
    };
    let mut found = None;
    for _ in 0..members {
        let Some((is_it, text)) = reader.member(key) else {
            break;
        };
        if is_it {
            found = text;
        }
    }
    found
}

struct Peek<'a> {
    bytes: &'a [u8],
    values_left: usize,
}

/// A value in the message; the contents of lists and maps follow it.
enum PeekedToken<'a> {
    Text(&'a [u8]),
    List(u64),
    Map(u64),
    Other,
}

impl<'a> Peek<'a> {
    /// Skips a key and its value. Returns whether the key is `key`, and the value if it is a
    /// string.
    fn member(&mut self, key: &str) -> Option<(bool, Option<&'a str>)> {
        let is_it = match self.token()? {
            PeekedToken::Text(text) => text == key.as_bytes(),
            other => {
                self.inside(&other)?;
                false
            }
        };
        let value = self.token()?;
        self.inside(&value)?;
        let text = if let PeekedToken::Text(text) = value {
            std::str::from_utf8(text).ok()
        } else {
            None
        };
        Some((is_it, text.filter(|_| is_it)))
    }

    /// Skips the contents of a list or a map.
    fn inside(&mut self, token: &PeekedToken) -> Option<()> {
        let mut left = Self::children(token);
        while left > 0 {
            let token = self.token()?;
            left = (left - 1).checked_add(Self::children(&token))?;
        }
        Some(())
    }

    fn children(token: &PeekedToken) -> u64 {
        match token {
            PeekedToken::List(items) => *items,
            PeekedToken::Map(members) => members * 2,
            PeekedToken::Text(_) | PeekedToken::Other => 0,
        }
    }

    fn token(&mut self) -> Option<PeekedToken<'a>> {
        self.values_left = self.values_left.checked_sub(1)?;
        let marker = *self.take(1)?.first()?;
        Some(match marker {
            0x80..=0x8f => PeekedToken::Map(u64::from(marker & 0x0f)),
            0x90..=0x9f => PeekedToken::List(u64::from(marker & 0x0f)),
            0xa0..=0xbf => PeekedToken::Text(self.take(u64::from(marker & 0x1f))?),
            0xc1 => return None,
            0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => PeekedToken::Other,
            0xc4..=0xc6 => {
                let length = self.number(1 << (marker - 0xc4))?;
                self.skip(length)?
            }
            0xc7..=0xc9 => {
                let length = self.number(1 << (marker - 0xc7))?;
                self.skip(length + 1)?
            }
            0xca => self.skip(4)?,
            0xcb => self.skip(8)?,
            0xcc..=0xcf => self.skip(1 << (marker - 0xcc))?,
            0xd0..=0xd3 => self.skip(1 << (marker - 0xd0))?,
            0xd4..=0xd8 => self.skip(1 + (1 << (marker - 0xd4)))?,
            0xd9..=0xdb => {
                let length = self.number(1 << (marker - 0xd9))?;
                PeekedToken::Text(self.take(length)?)
            }
            0xdc | 0xdd => PeekedToken::List(self.number(2 << (marker - 0xdc))?),
            0xde | 0xdf => PeekedToken::Map(self.number(2 << (marker - 0xde))?),
        })
    }

    fn skip(&mut self, length: u64) -> Option<PeekedToken<'a>> {
        self.take(length)?;
        Some(PeekedToken::Other)
    }

    /// Reads an integer of up to four bytes.
    fn number(&mut self, width: u64) -> Option<u64> {
        Some(
            self.take(width)?
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(usize::try_from(length).ok()?)?;
        self.bytes = rest;
        Some(taken)
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
        assert_eq!(peek_text(b"\xdf\xff\xff\xff\xff\xa1t\xa1a", "t"), Some("a"));
        let lists = [
            &b"\x82\xa1x"[..],
            &b"\xdd\xff\xff\xff\xff".repeat(100_000),
            b"\xa1t\xa1a",
        ]
        .concat();
        assert_eq!(peek_text(&lists, "t"), None);
    }
}
