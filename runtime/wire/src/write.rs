//! Encodes values as msgpack, each in its shortest form, as msgpack-python does.

use crate::{Dialect, Key, Value, dialect};

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
