//! Writes TensorBoard's event files, without Python.
//!
//! ```text
//! <folder>/events.out.tfevents.<seconds>.<host>.<pid>.0
//!          one file for each start of rank 0; TensorBoard reads them in the order of their names
//! ```
//! A file is a sequence of records, which carry checksums (TFRecord):
//!
//! ```text
//! u64 length │ u32 checksum of the length │ data │ u32 checksum of the data     little-endian
//! ```
//! The data is a message in the encoding of Protocol Buffers: as few fields as scalars and texts
//! need.
//!
//! Follows tensorboard/compat/proto/event.proto, summary.proto, tensor.proto and
//! tensor_shape.proto, tensorboard 2.21; tensorflow/core/lib/io/record_writer.h and
//! tensorflow/core/lib/hash/crc32c.h, TensorFlow 2.16.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use jobs::tree::plain;
use serde_json::Value;

use crate::clock::unix_seconds;
use crate::eval::monitor::tracking::point::{Point, RunEnding};

/// The event file of a run: its configuration, the points that come, and its end.
pub struct EventFile {
    file: File,
    last_step: u64,
}

impl EventFile {
    /// Creates a file with a new name.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn create(folder: &Path, config: &Value) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let (now, host, pid) = (unix_seconds(), jobs::host::name(), std::process::id());
        let name = format!("events.out.tfevents.{:010}.{host}.{pid}.0", now as u64);
        let path = folder.join(name);
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        append(&mut file, &version(now))?;
        append(&mut file, &text_event(now, 0, "config", &as_table(config)))?;
        Ok(Self { file, last_step: 0 })
    }

    /// Appends the state of the run at a moment.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn add(&mut self, point: &Point) -> io::Result<()> {
        self.last_step = point.step;
        let scalars = scalars(point.unix_s, point.step, &point.values);
        append(&mut self.file, &scalars)
    }

    /// Appends what is said about the run at its end.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn end(&mut self, ending: &RunEnding) -> io::Result<()> {
        for (tag, text) in [("tasks", &ending.table), ("files", &ending.files())] {
            let text = text_event(unix_seconds(), self.last_step, tag, text);
            append(&mut self.file, &text)?;
        }
        Ok(())
    }
}

/// Returns the configuration as a table in Markdown.
fn as_table(config: &Value) -> String {
    let row = |(name, value): (&String, &Value)| {
        format!("| {name} | {} |\n", plain(value).replace('|', "\\|"))
    };
    let rows: String = config.as_object().into_iter().flatten().map(row).collect();
    format!("| setting | value |\n|---|---|\n{rows}")
}

/// Appends a record in one write, so that TensorBoard sees whole ones.
///
/// # Errors
/// Returns the errors of the file system.
fn append(mut file: impl Write, data: &[u8]) -> io::Result<()> {
    let length = (data.len() as u64).to_le_bytes();
    let (of_length, of_data) = (masked_crc(&length), masked_crc(data));
    let of_length = of_length.to_le_bytes();
    let record = [&length[..], &of_length, data, &of_data.to_le_bytes()];
    file.write_all(&record.concat())
}

/// Returns the CRC-32C of the bytes, rotated and with a constant added, so that the checksum of
/// data that contains checksums does not degenerate.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// The version that the first event of a file has.
const FILE_VERSION: &str = "brain.Event:2";
/// `tensorflow.DT_STRING`.
const DT_STRING: u64 = 7;
/// `tensorboard.DATA_CLASS_TENSOR`.
const DATA_CLASS_TENSOR: u64 = 2;

/// Field types on the wire.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

/// A message that is being encoded.
#[derive(Debug, Default)]
struct Encoder(Vec<u8>);

impl Encoder {
    fn tag(&mut self, field: u32, wire_type: u32) {
        self.number(u64::from(field << 3 | wire_type));
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn varint(mut self, field: u32, value: u64) -> Self {
        self.tag(field, VARINT);
        self.number(value);
        self
    }

    fn fixed<const N: usize>(mut self, field: u32, wire_type: u32, value: [u8; N]) -> Self {
        self.tag(field, wire_type);
        self.0.extend_from_slice(&value);
        self
    }

    fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.tag(field, BYTES);
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    fn double(self, field: u32, value: f64) -> Self {
        self.fixed(field, FIXED64, value.to_le_bytes())
    }

    fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u32, message: Self) -> Self {
        self.bytes(field, &message.0)
    }
}

/// Returns the event with which a file begins.
fn version(unix_s: f64) -> Vec<u8> {
    Encoder::default().double(1, unix_s).text(3, FILE_VERSION).0
}

/// Returns an event with scalars. TensorBoard has values of 32 bits.
fn scalars(unix_s: f64, step: u64, values: &[(String, f64)]) -> Vec<u8> {
    let value = |(tag, value): &(String, f64)| {
        let value = (*value as f32).to_le_bytes();
        Encoder::default().text(1, tag).fixed(2, FIXED32, value)
    };
    event(unix_s, step, values.iter().map(value))
}

/// Returns an event with a text in Markdown, as TensorBoard's text plugin shows it.
fn text_event(unix_s: f64, step: u64, tag: &str, markdown: &str) -> Vec<u8> {
    let plugin = Encoder::default().text(1, "text");
    let metadata = Encoder::default()
        .message(1, plugin)
        .varint(4, DATA_CLASS_TENSOR);
    // A vector of one text.
    let shape = Encoder::default().message(2, Encoder::default().varint(1, 1));
    let tensor = Encoder::default()
        .varint(1, DT_STRING)
        .message(2, shape)
        .text(8, markdown);
    let value = Encoder::default()
        .text(1, tag)
        .message(8, tensor)
        .message(9, metadata);
    event(unix_s, step, [value])
}

fn event(unix_s: f64, step: u64, values: impl IntoIterator<Item = Encoder>) -> Vec<u8> {
    let values = values.into_iter();
    let summary = values.fold(Encoder::default(), |summary, value| {
        summary.message(1, value)
    });
    Encoder::default()
        .double(1, unix_s)
        .varint(2, step)
        .message(5, summary)
        .0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn events_have_the_bytes_of_tensorboards_own_messages() {
        // `SerializeToString()` of the messages of tensorboard 2.21, protobuf 7.36.
        assert_eq!(hex(&version(1.5)), VERSION);
        let values = [("a/b".to_owned(), 0.75), ("c".to_owned(), 300.0)];
        assert_eq!(hex(&scalars(2.5, 300, &values)), SCALARS);
        assert_eq!(
            hex(&text_event(3.5, 1, "t", &"x".repeat(200))),
            TEXT.replace("@", &"78".repeat(200))
        );
    }

    const VERSION: &str = "09000000000000f83f1a0d627261696e2e4576656e743a32";
    const SCALARS: &str =
        "09000000000000044010ac022a160a0a0a03612f62150000403f0a080a01631500009643";
    const TEXT: &str = "090000000000000c4010012ae8010ae5010a017442d301080712041202080142c801@4a0a0a060a04746578742002";

    #[test]
    fn a_record_has_the_bytes_of_tensorboards_own_writer() {
        // tensorboard 2.21: RecordWriter(file).write(b"rrun")
        let mut file = Vec::new();
        append(&mut file, b"rrun").unwrap();
        assert_eq!(hex(&file), RECORD);
    }

    const RECORD: &str = "0400000000000000424552047272756e6194eb30";
}
