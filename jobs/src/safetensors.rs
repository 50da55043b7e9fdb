//! The header of a safetensors file: its length in [`LENGTH`] bytes, and a JSON object that
//! describes the tensors after it.

use std::io::{self, ErrorKind, Read};

/// Size in bytes of the length before the JSON.
pub const LENGTH: u64 = 8;

/// Maximum size of the JSON in bytes; safetensors' own reader has the same limit.
const MAX_HEADER: u64 = 100_000_000;

/// Reads the JSON at the beginning of a file of `size` bytes, and nothing beyond that size.
///
/// # Errors
/// Returns the errors of the file system, and `InvalidData` for a length that the file cannot have.
pub fn header(file: &mut impl Read, size: u64) -> io::Result<Vec<u8>> {
    let wrong = |reason: String| Err(io::Error::new(ErrorKind::InvalidData, reason));
    if size < LENGTH {
        return wrong(format!("{size} bytes are not even a header"));
    }
    let mut length = [0; LENGTH as usize];
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER || length > size - LENGTH {
        return wrong(format!(
            "a header of {length} bytes is announced in a file of {size}"
        ));
    }
    let mut json = Vec::new();
    file.take(length).read_to_end(&mut json)?;
    Ok(json)
}
