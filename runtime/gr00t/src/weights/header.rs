//! Reads the header of a safetensors file, which lists the position of each tensor.
//!
//! ```text
//! u64 n, little endian │ n bytes of JSON │ the tensors, back to back
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use jobs::refusal::Refusal;
use safetensors::Dtype;
use safetensors::tensor::Metadata;
use serde::de::IgnoredAny;

use crate::error::{in_file, refuse};
use crate::weights::pairs::JsonPairs;

/// Size of the length field before the header, in bytes.
const LENGTH: u64 = 8;
/// Maximum size of a header in bytes; safetensors' own reader has the same limit.
const MAX_HEADER: u64 = 100_000_000;

/// The type, shape and position of a tensor in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TensorEntry {
    /// Element type according to the file.
    pub(super) dtype: Dtype,
    /// Shape according to the file.
    pub(super) shape: Vec<i64>,
    /// Byte range, counted from the beginning of the file.
    pub(super) bytes: Range<i64>,
}

/// What is wrong with a header.
#[derive(Debug, thiserror::Error)]
enum HeaderError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{size} bytes are not even a header")]
    Short { size: u64 },
    #[error("a header of {length} bytes is announced in a file of {size}")]
    Length { length: u64, size: u64 },
    #[error("header: {0}")]
    Json(#[from] serde_json::Error),
    #[error("tensor `{name}` is listed twice")]
    Twice { name: String },
    #[error("{size} bytes long, but the header describes {described}")]
    Size { size: u64, described: u64 },
    #[error("a header of {begin} bytes")]
    Begin { begin: u64 },
    #[error("a size of {value}")]
    Number { value: usize },
    #[error("tensor `{name}` is not described")]
    NotDescribed { name: String },
}

impl HeaderError {
    /// Returns the error with the name of its file.
    fn at(self, path: &Path) -> Refusal {
        match self {
            Self::Io(err) => refuse(path, err),
            other => refuse(path, format_args!("not a safetensors file: {other}")),
        }
    }
}

/// Reads the header of the file at `path` and returns its tensors by name. They cover the rest of
/// the file without gap or overlap.
///
/// # Errors
/// Returns a [`Refusal`] that names the file.
pub(super) fn read(path: &Path, file: &mut File) -> Result<Vec<(String, TensorEntry)>, Refusal> {
    let size = file.metadata().map_err(in_file(path))?.len();
    let json = header(file, size).map_err(|err| err.at(path))?;
    entries(&json, size).map_err(|err| err.at(path))
}

/// Reads the JSON, without reading beyond the size of the file.
fn header(file: &mut impl Read, size: u64) -> Result<Vec<u8>, HeaderError> {
    let mut length = [0; LENGTH as usize];
    if size < LENGTH {
        return Err(HeaderError::Short { size });
    }
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER || length > size - LENGTH {
        return Err(HeaderError::Length { length, size });
    }
    let mut json = Vec::new();
    file.by_ref().take(length).read_to_end(&mut json)?;
    Ok(json)
}

/// Returns the tensors that `json`, in a file of `size` bytes, describes.
fn entries(json: &[u8], size: u64) -> Result<Vec<(String, TensorEntry)>, HeaderError> {
    let names: JsonPairs<IgnoredAny> = serde_json::from_slice(json)?;
    if let Some(name) = names.duplicate() {
        return Err(HeaderError::Twice {
            name: name.to_owned(),
        });
    }
    // Deserialisation refuses gaps, overlaps, overflows, and shapes that do not match the byte
    // ranges.
    let metadata: Metadata = serde_json::from_slice(json)?;
    let begin = LENGTH + json.len() as u64;
    let described = begin.saturating_add(metadata.data_len() as u64);
    if described != size {
        return Err(HeaderError::Size { size, described });
    }
    let begin = i64::try_from(begin).map_err(|_| HeaderError::Begin { begin })?;
    metadata
        .offset_keys()
        .into_iter()
        .map(|name| Ok((name.clone(), entry(&metadata, name, begin)?)))
        .collect()
}

/// Returns the entry of a tensor; the data begins at byte `begin` of the file.
fn entry(metadata: &Metadata, name: String, begin: i64) -> Result<TensorEntry, HeaderError> {
    let Some(info) = metadata.info(&name) else {
        return Err(HeaderError::NotDescribed { name });
    };
    let shape = info
        .shape
        .iter()
        .map(|&side| number(side))
        .collect::<Result<_, _>>()?;
    Ok(TensorEntry {
        dtype: info.dtype,
        shape,
        bytes: begin + number(info.data_offsets.0)?..begin + number(info.data_offsets.1)?,
    })
}

fn number(value: usize) -> Result<i64, HeaderError> {
    i64::try_from(value).map_err(|_| HeaderError::Number { value })
}

#[cfg(test)]
mod tests {
    use rig::hostile::Target;

    use super::*;

    #[test]
    fn hostile_safetensors() {
        Target::new("safetensors").run(|input| match header(&mut &*input, input.len() as u64) {
            Ok(json) => entries(&json, input.len() as u64)
                .map(|entries| entries.len())
                .map_err(kind),
            Err(err) => Err(kind(err)),
        });
    }

    /// Returns an error message without its numbers and names.
    fn kind(err: HeaderError) -> String {
        err.to_string()
            .chars()
            .filter(|letter| letter.is_ascii_alphabetic())
            .take(24)
            .collect()
    }
}
