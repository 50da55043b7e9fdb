//! Reads TensorBoard's event files, and checks their checksums, by code of its own: bit by bit, and
//! without a line of the writer.

use std::collections::BTreeMap;
use std::path::Path;

/// One event of a file.
#[derive(Debug, Default)]
pub struct Event {
    pub step: u64,
    pub file_version: String,
    pub scalars: Vec<(String, f32)>,
    pub texts: BTreeMap<String, String>,
}

/// A field of a message of Protocol Buffers.
enum Field<'a> {
    Varint(u64),
    Fixed(&'a [u8]),
    Bytes(&'a [u8]),
}

/// Returns the events of a file whose records are whole.
pub fn read(path: &Path) -> Vec<Event> {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut events) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (length, after) = rest.split_at(8);
        let (of_length, after) = after.split_at(4);
        assert_eq!(number(of_length), u64::from(masked_crc(length)));
        let (data, after) = after.split_at(number(length) as usize);
        let (of_data, after) = after.split_at(4);
        assert_eq!(number(of_data), u64::from(masked_crc(data)));
        events.push(event(data));
        rest = after;
    }
    events
}

fn event(data: &[u8]) -> Event {
    let mut event = Event::default();
    for field in fields(data) {
        match field {
            (2, Field::Varint(step)) => event.step = step,
            (3, Field::Bytes(version)) => event.file_version = text(version),
            (5, Field::Bytes(summary)) => fields(summary).into_iter().for_each(|(_, value)| {
                let Field::Bytes(value) = value else {
                    panic!("a value is a message")
                };
                add_value(&mut event, value);
            }),
            _ => {}
        }
    }
    event
}

fn add_value(event: &mut Event, value: &[u8]) {
    let fields_of_value = fields(value);
    let Some((1, Field::Bytes(tag))) = fields_of_value.first() else {
        panic!("the tag comes first")
    };
    for (number_of_field, field) in &fields_of_value {
        match (number_of_field, field) {
            (2, Field::Fixed(bytes)) => {
                let value = f32::from_le_bytes((*bytes).try_into().unwrap());
                event.scalars.push((text(tag), value));
            }
            (8, Field::Bytes(tensor)) => {
                for field in fields(tensor) {
                    if let (8, Field::Bytes(markdown)) = field {
                        event.texts.insert(text(tag), text(markdown));
                    }
                }
            }
            _ => {}
        }
    }
}

fn fields(mut data: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !data.is_empty() {
        let tag = varint(&mut data);
        let field = match tag & 7 {
            0 => Field::Varint(varint(&mut data)),
            1 => Field::Fixed(take(&mut data, 8)),
            2 => {
                let length = varint(&mut data) as usize;
                Field::Bytes(take(&mut data, length))
            }
            5 => Field::Fixed(take(&mut data, 4)),
            other => panic!("type {other} of a field"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn take<'a>(data: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = data.split_at(count);
    *data = rest;
    taken
}

fn varint(data: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(data, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn number(little_endian: &[u8]) -> u64 {
    let bytes = little_endian.iter().rev();
    bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// CRC-32C, bit by bit, as TFRecord masks it.
fn masked_crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1;
            crc >>= 1;
            crc ^= carry * 0x82f6_3b78;
        }
    }
    let crc = !crc;
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}
