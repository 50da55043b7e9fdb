//! Reads the header of a safetensors file, which lists the position of each tensor.
//!
//! ```text
//! u64 n, little endian │ n bytes of JSON │ the tensors, back to back
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde::de::IgnoredAny;

use crate::LoadError;
use crate::weights::pairs::Pairs;

/// Size of the length field before the header, in bytes.
const LENGTH: u64 = 8;
/// Maximum size of a header in bytes; safetensors' own reader has the same limit.
const MAX_HEADER: u64 = 100_000_000;

/// The type, shape and position of a tensor in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Element type according to the file.
    pub(super) dtype: Dtype,
    /// Shape according to the file.
    pub(super) shape: Vec<i64>,
    /// Byte range, counted from the beginning of the file.
    pub(super) bytes: Range<i64>,
}

/// Reads the header of the file at `path` and returns its tensors by name. They cover the rest of
/// the file without gap or overlap.
///
/// # Errors
/// Returns a [`LoadError`] that names the file.
pub(super) fn read(path: &Path, file: &mut File) -> Result<Vec<(String, Entry)>, LoadError> {
    let size = file.metadata().map_err(LoadError::io(path))?.len();
    let bad = |reason: String| LoadError::Safetensors {
        path: path.to_owned(),
        reason,
    };
    let json = match header(file, size) {
        Ok(Ok(json)) => json,
        Ok(Err(reason)) => return Err(bad(reason)),
        Err(err) => {
            return Err(LoadError::Io {
                path: path.to_owned(),
                err,
            });
        }
    };
    entries(&json, size).map_err(bad)
}

/// Reads the JSON, without reading beyond the size of the file.
fn header(file: &mut impl Read, size: u64) -> io::Result<Result<Vec<u8>, String>> {
    let mut length = [0; LENGTH as usize];
    if size < LENGTH {
        return Ok(Err(format!("{size} bytes are not even a header")));
    }
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER || length > size - LENGTH {
        return Ok(Err(format!(
            "a header of {length} bytes is announced in a file of {size}"
        )));
    }
    let mut json = Vec::new();
    file.by_ref().take(length).read_to_end(&mut json)?;
    Ok(Ok(json))
}

/// Returns the tensors that `json`, in a file of `size` bytes, describes.
fn entries(json: &[u8], size: u64) -> Result<Vec<(String, Entry)>, String> {
    let names: Pairs<IgnoredAny> =
        serde_json::from_slice(json).map_err(|err| format!("header: {err}"))?;
    if let Some(name) = names.duplicate() {
        return Err(format!("tensor `{name}` is there twice"));
    }
    // Deserialisation refuses gaps, overlaps, overflows, and shapes that do not match the byte
    // ranges.
    let metadata: Metadata =
        serde_json::from_slice(json).map_err(|err| format!("header: {err}"))?;
    let begin = LENGTH + json.len() as u64;
    let described = begin.saturating_add(metadata.data_len() as u64);
    if described != size {
        return Err(format!(
            "{size} bytes long, but the header describes {described}"
        ));
    }
    let number = |value: usize| i64::try_from(value).map_err(|_| format!("a size of {value}"));
    let begin = i64::try_from(begin).map_err(|_| format!("a header of {begin} bytes"))?;
    let entry = |name: String| -> Result<(String, Entry), String> {
        let info = metadata
            .info(&name)
            .ok_or_else(|| format!("tensor `{name}` is not described"))?;
        let shape = info
            .shape
            .iter()
            .map(|&side| number(side))
            .collect::<Result<_, _>>()?;
        let bytes = begin + number(info.data_offsets.0)?..begin + number(info.data_offsets.1)?;
        Ok((
            name,
            Entry {
                dtype: info.dtype,
                shape,
                bytes,
            },
        ))
    };
    metadata.offset_keys().into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use hostile::Target;

    use super::*;

    #[test]
    fn hostile_safetensors() {
        let words: &[&[u8]] = &[
            b"\"dtype\":\"F32\"",
            b"\"dtype\":\"BF16\"",
            b"\"shape\":[",
            b"\"data_offsets\":[",
            b"\"__metadata__\":{",
            b"18446744073709551615",
            b"9223372036854775807",
            b"-1",
            b"0",
            b"1e99",
            b"[",
            b"{",
            b"null",
        ];
        Target::new("safetensors").dictionary(words).run(|input| {
            match header(&mut &*input, input.len() as u64) {
                Ok(Ok(json)) => entries(&json, input.len() as u64)
                    .map(|entries| entries.len())
                    .map_err(kind),
                Ok(Err(reason)) => Err(kind(reason)),
                Err(err) => Err(err.to_string()),
            }
        });
    }

    /// Returns an error message without its numbers and names.
    fn kind(reason: String) -> String {
        reason
            .chars()
            .filter(|letter| letter.is_ascii_alphabetic())
            .take(24)
            .collect()
    }
}
