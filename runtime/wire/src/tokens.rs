//! Splits msgpack into tokens. <https://github.com/msgpack/msgpack/blob/master/spec.md>

use crate::WireError;

/// Maximum number of values in a message. An observation has some dozens. A value takes up to 50
/// times the memory of its shortest encoding.
pub(super) const MOST_VALUES: usize = 1 << 16;

/// A value in a message; the contents of lists and maps follow it.
pub(super) enum Token<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Large(u64),
    Float(f64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    /// An extension type, whose contents nothing here uses.
    Extension,
    List(u32),
    Map(u32),
}

impl Token<'_> {
    /// Returns how many values follow that belong to this one.
    pub(super) fn children(&self) -> u64 {
        match self {
            Self::List(items) => u64::from(*items),
            Self::Map(members) => u64::from(*members) * 2,
            _ => 0,
        }
    }
}

/// The tokens of a message, of which there are at most [`MOST_VALUES`].
pub(super) struct Tokens<'a> {
    message: &'a [u8],
    /// What has not been read yet.
    rest: &'a [u8],
    values_left: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self {
            message,
            rest: message,
            values_left: MOST_VALUES,
        }
    }

    /// Returns the number of bytes that have not been read.
    pub(super) fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    /// Reads the next token. The list or map that it begins may promise more values than follow,
    /// but no more than there may be.
    pub(super) fn next(&mut self) -> Result<Token<'a>, WireError> {
        let is_too_much =
            || WireError::new(format!("the message has more than {MOST_VALUES} values"));
        self.values_left = self.values_left.checked_sub(1).ok_or_else(is_too_much)?;
        let [marker] = self.number()?;
        let token = match marker {
            0x00..=0x7f => Token::Int(i64::from(marker)),
            0x80..=0x8f => Token::Map(u32::from(marker & 0x0f)),
            0x90..=0x9f => Token::List(u32::from(marker & 0x0f)),
            0xa0..=0xbf => Token::Text(self.take(u32::from(marker & 0x1f))?),
            0xc0 => Token::Nil,
            0xc1 => {
                let at = self.message.len() - self.rest.len() - 1;
                return Err(WireError::new(format!("not msgpack: byte {at} is 0xc1")));
            }
            0xc2 | 0xc3 => Token::Bool(marker == 0xc3),
            0xc4..=0xc6 => {
                let length = self.length(marker - 0xc4)?;
                Token::Bytes(self.take(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(marker - 0xc7)?;
                self.extension(length)?
            }
            0xca => Token::Float(f64::from(f32::from_be_bytes(self.number()?))),
            0xcb => Token::Float(f64::from_be_bytes(self.number()?)),
            0xcc..=0xce => Token::Int(i64::from(self.length(marker - 0xcc)?)),
            0xcf => {
                let number = u64::from_be_bytes(self.number()?);
                i64::try_from(number).map_or(Token::Large(number), Token::Int)
            }
            0xd0 => Token::Int(i64::from(i8::from_be_bytes(self.number()?))),
            0xd1 => Token::Int(i64::from(i16::from_be_bytes(self.number()?))),
            0xd2 => Token::Int(i64::from(i32::from_be_bytes(self.number()?))),
            0xd3 => Token::Int(i64::from_be_bytes(self.number()?)),
            0xd4..=0xd8 => self.extension(1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.length(marker - 0xd9)?;
                Token::Text(self.take(length)?)
            }
            0xdc | 0xdd => Token::List(self.length(marker - 0xdc + 1)?),
            0xde | 0xdf => Token::Map(self.length(marker - 0xde + 1)?),
            0xe0..=0xff => Token::Int(i64::from(marker.cast_signed())),
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

    fn extension(&mut self, length: u32) -> Result<Token<'a>, WireError> {
        let [_kind] = self.number()?;
        self.take(length)?;
        Ok(Token::Extension)
    }

    /// Reads an unsigned number of 1, 2 or 4 bytes.
    fn length(&mut self, width: u8) -> Result<u32, WireError> {
        Ok(match width {
            0 => u32::from(u8::from_be_bytes(self.number()?)),
            1 => u32::from(u16::from_be_bytes(self.number()?)),
            _ => u32::from_be_bytes(self.number()?),
        })
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (number, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| self.incomplete())?;
        self.rest = rest;
        Ok(*number)
    }

    fn take(&mut self, length: u32) -> Result<&'a [u8], WireError> {
        let split = self.rest.split_at_checked(length as usize);
        let (taken, rest) = split.ok_or_else(|| self.incomplete())?;
        self.rest = rest;
        Ok(taken)
    }

    fn incomplete(&self) -> WireError {
        let bytes = self.message.len();
        WireError::new(format!(
            "the message is {bytes} bytes long and ends within a value"
        ))
    }
}
