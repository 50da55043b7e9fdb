//! Encodes values as msgpack, each in its shortest form, as msgpack-python does.

use crate::{Array, Dialect, Key, Value, dialect};

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

pub(super) struct MsgpackEncoder {
    out: Vec<u8>,
    dialect: Dialect,
}

impl MsgpackEncoder {
    pub(super) fn value(&mut self, value: &Value) {
        match value {
            Value::Nil => self.out.push(0xc0),
            Value::Bool(flag) => self.out.push(0xc2 + u8::from(*flag)),
            Value::Int(number) => self.int(*number),
            Value::Large(number) => self.marked(0xcf, &number.to_be_bytes()),
            Value::Float(number) => self.marked(0xcb, &number.to_be_bytes()),
            Value::Text(text) => self.text(text),
            Value::Bytes(bytes) => self.bytes(bytes),
            Value::List(items) => {
                self.head([0x90, 0x0f], [None, Some(0xdc), Some(0xdd)], items.len());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Map(members) => {
                self.map(members.len());
                for (key, value) in members {
                    match key {
                        Key::Text(text) => self.text(text),
                        Key::Bytes(bytes) => self.bytes(bytes),
                    }
                    self.value(value);
                }
            }
            Value::Ext(kind, data) => self.extension(*kind, data),
            Value::Array(array) => self.array(array),
            Value::Scalar(scalar) => dialect::write_scalar(self, self.dialect, scalar),
        }
    }

    fn array(&mut self, array: &Array) {
        dialect::write_array(self, self.dialect, array);
    }

    pub(super) fn map(&mut self, members: usize) {
        self.head([0x80, 0x0f], [None, Some(0xde), Some(0xdf)], members);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.head(
            [0xa0, 0x1f],
            [Some(0xd9), Some(0xda), Some(0xdb)],
            text.len(),
        );
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes_head(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    /// Writes the header of a byte string; [`MsgpackEncoder::raw`] must write the bytes themselves
    /// afterwards.
    pub(super) fn bytes_head(&mut self, length: usize) {
        self.head([0, 0], [Some(0xc4), Some(0xc5), Some(0xc6)], length);
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
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

    fn extension(&mut self, kind: i8, data: &[u8]) {
        match data.len() {
            1 | 2 | 4 | 8 | 16 => self.out.push(0xd4 + data.len().trailing_zeros() as u8),
            length => self.head([0, 0], [Some(0xc7), Some(0xc8), Some(0xc9)], length),
        }
        self.out.push(kind.cast_unsigned());
        self.out.extend_from_slice(data);
    }

    /// Writes a length into the marker itself, or after a marker for lengths of 1, 2 and 4 bytes.
    fn head(&mut self, [fixed, mask]: [u8; 2], markers: [Option<u8>; 3], length: usize) {
        let [one, two, four] = markers;
        match length {
            _ if mask > 0 && length <= usize::from(mask) => self.out.push(fixed | length as u8),
            0..=0xff if one.is_some() => self.marked(one.unwrap_or_default(), &[length as u8]),
            0..=0xffff => self.marked(two.unwrap_or_default(), &(length as u16).to_be_bytes()),
            _ => {
                let length = u32::try_from(length).expect("a message is shorter than 4 GiB");
                self.marked(four.unwrap_or_default(), &length.to_be_bytes());
            }
        }
    }

    fn marked(&mut self, marker: u8, bytes: &[u8]) {
        self.out.push(marker);
        self.out.extend_from_slice(bytes);
    }
}
