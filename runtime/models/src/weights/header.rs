//! Reads the header of a safetensors file, which lists the position of each tensor.
//!
//! ```text
//! u64 n, little endian │ n bytes of JSON │ the tensors, back to back
//! ```

use std::fs::File;
use std::io::Read;
use std::path::Path;

use jobs::refusal::Refusal;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::IgnoredAny;

use crate::error::{in_file, refuse};
use crate::weights::checkpoint::JsonPairs;

/// The tensors of a file by name; their offsets count from the beginning of the data.
pub(super) type Entries = Vec<(String, TensorInfo)>;

/// Size of the length field before the header, in bytes.
const LENGTH: u64 = 8;
/// Maximum size of a header in bytes; safetensors' own reader has the same limit.
const MAX_HEADER: u64 = 100_000_000;

/// Reads the header of the file at `path` and returns the byte at which its data begins, and its
/// tensors by name. They cover the rest of the file without gap or overlap.
///
/// # Errors
/// Returns a [`Refusal`] that names the file.
pub(super) fn read(path: &Path, file: &mut File) -> Result<(i64, Entries), Refusal> {
    let size = file.metadata().map_err(in_file(path))?.len();
    let entries = header(file, size).and_then(|json| entries(&json, size));
    entries.map_err(|reason| refuse(path, format_args!("not a safetensors file: {reason}")))
}

/// Reads the JSON, without reading beyond the size of the file.
fn header(file: &mut impl Read, size: u64) -> Result<Vec<u8>, String> {
    let mut length = [0; LENGTH as usize];
    if size < LENGTH {
        return Err(format!("{size} bytes are not even a header"));
    }
    file.read_exact(&mut length)
        .map_err(|err| err.to_string())?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER || length > size - LENGTH {
        return Err(format!(
            "a header of {length} bytes is announced in a file of {size}"
        ));
    }
    let mut json = Vec::new();
    let read = file.by_ref().take(length).read_to_end(&mut json);
    read.map_err(|err| err.to_string())?;
    Ok(json)
}

/// Returns the tensors that `json`, in a file of `size` bytes, describes.
fn entries(json: &[u8], size: u64) -> Result<(i64, Entries), String> {
    let broken = |err: serde_json::Error| format!("header: {err}");
    let names: JsonPairs<IgnoredAny> = serde_json::from_slice(json).map_err(broken)?;
    if let Some(name) = names.duplicate() {
        return Err(format!("tensor `{name}` is listed twice"));
    }
    // Deserialisation refuses gaps, overlaps, overflows, and shapes that do not match the byte
    // ranges.
    let metadata: Metadata = serde_json::from_slice(json).map_err(broken)?;
    let begin = LENGTH + json.len() as u64;
    let described = begin.saturating_add(metadata.data_len() as u64);
    if described != size {
        return Err(format!(
            "{size} bytes long, but the header describes {described}"
        ));
    }
    let begin = i64::try_from(begin).map_err(|_| format!("a header of {begin} bytes"))?;
    let tensors = metadata.tensors().into_iter();
    let owned = tensors.map(|(name, info)| (name, info.clone()));
    Ok((begin, owned.collect()))
}

#[cfg(test)]
mod tests {
    use rig::hostile::Target;

    use super::*;

    #[test]
    fn hostile_safetensors() {
        Target::new("safetensors").run(|input| match header(&mut &*input, input.len() as u64) {
            Ok(json) => entries(&json, input.len() as u64)
                .map(|(_, entries)| entries.len())
                .map_err(kind),
            Err(err) => Err(kind(err)),
        });
    }

    /// Returns an error message without its numbers and names.
    fn kind(err: String) -> String {
        err.chars()
            .filter(|letter| letter.is_ascii_alphabetic())
            .take(24)
            .collect()
    }
}
