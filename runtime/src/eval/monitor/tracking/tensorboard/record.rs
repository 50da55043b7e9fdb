//! The framing of event files: TFRecord, whose records carry checksums.
//!
//! ```text
//! u64 length │ u32 checksum of the length │ data │ u32 checksum of the data     little-endian
//! ```
//! Follows tensorflow/core/lib/io/record_writer.h and tensorflow/core/lib/hash/crc32c.h,
//! TensorFlow 2.16.

use std::io::{self, Write};

/// Appends a record in one write, so that TensorBoard sees whole ones.
///
/// # Errors
/// Returns the errors of the file system.
pub fn append(mut file: impl Write, data: &[u8]) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_bytes_of_tensorboards_own_writer() {
        // tensorboard 2.21: RecordWriter(file).write(b"rrun")
        let mut file = Vec::new();
        append(&mut file, b"rrun").unwrap();
        assert_eq!(hex(&file), RECORD);
    }

    const RECORD: &str = "0400000000000000424552047272756e6194eb30";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
