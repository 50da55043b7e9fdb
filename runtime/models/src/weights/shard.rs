//! One mapped safetensors file, whose header lists the position of each tensor.
//!
//! ```text
//! u64 n, little endian │ n bytes of JSON │ the tensors, back to back
//! ```
//!
//! The map is a byte tensor owned by libtorch, and every tensor in the file is a view of it, so the
//! map lives exactly as long as something uses it. The mapping is private: writing to a tensor
//! would copy a page and never reaches the file. Pages that are only read belong to the page cache
//! and are shared by all ranks of a node. A checkpoint is replaced by renaming, which leaves maps
//! intact; truncating a mapped file would cause a SIGBUS.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use jobs::refusal::Refusal;
use jobs::safetensors::{LENGTH, header};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use tch::{Device, Kind, Tensor};

use crate::error::{in_file, refuse};
use crate::weights::TensorPlace;
use crate::weights::upload::ShardFile;
use torchlib::torch_error::message;

/// Number of bytes that are copied at a time: a multiple of every page and element size.
const PIECE: usize = 64 << 20;
/// Size in bytes of the largest page that the map of a file may have here.
const PAGE: usize = 64 << 10;

/// The tensors of a file by name; their offsets count from the beginning of the data.
pub(super) type Entries = Vec<(String, TensorInfo)>;

/// A mapped file.
#[derive(Debug)]
pub(super) struct MappedShard {
    /// The mapped bytes, `[file size]`, `u8`.
    map: Tensor,
    /// The byte at which the data of tensors begins.
    pub(super) begin: i64,
    /// The same file, for reading.
    pub(super) source: ShardFile,
}

impl MappedShard {
    /// Maps the file and reads its header.
    pub(super) fn open(path: &Path) -> Result<(Self, Entries), Refusal> {
        let mut file = File::open(path).map_err(in_file(path))?;
        let (begin, entries) = read_header(path, &mut file)?;
        let map = map(path, &file)?;
        let source = ShardFile {
            path: path.to_owned(),
            file: Arc::new(file),
        };
        let shard = Self { map, begin, source };
        Ok((shard, entries))
    }

    /// Returns the tensor on `device` in `kind`: a view of the map if nothing has to change, else a
    /// copy.
    pub(super) fn tensor(&self, place: &TensorPlace, kind: Kind, device: Device) -> Tensor {
        let (stored, bytes) = (place.stored, &place.bytes);
        let is_aligned = bytes.start % stored.elt_size_in_bytes() as i64 == 0;
        if is_aligned && stored == kind && device == Device::Cpu {
            return self.bytes(bytes).view_dtype(stored).view(place.shape);
        }
        self.copied(place, kind, device)
    }

    /// Copies piece by piece, so that only a small part of the file is in this process's memory at
    /// any time.
    fn copied(&self, place: &TensorPlace, kind: Kind, device: Device) -> Tensor {
        let (stored, whole) = (place.stored, &place.bytes);
        let copy = Tensor::empty(place.shape, (kind, device));
        let (flat, size) = (copy.view(-1), stored.elt_size_in_bytes() as i64);
        for begin in whole.clone().step_by(PIECE) {
            let piece = self.bytes(&(begin..whole.end.min(begin + PIECE as i64)));
            advise(&piece, libc::MADV_WILLNEED);
            // A file may store its tensors at unaligned offsets, but a tensor must be aligned.
            let values = if begin % size == 0 {
                piece.view_dtype(stored)
            } else {
                piece.copy().view_dtype(stored)
            };
            flat.narrow(0, (begin - whole.start) / size, values.size()[0])
                .copy_(&values);
            advise(&piece, libc::MADV_DONTNEED);
        }
        copy
    }

    fn bytes(&self, range: &Range<i64>) -> Tensor {
        self.map.narrow(0, range.start, range.end - range.start)
    }
}

/// Gives the kernel advice about the whole pages inside a contiguous part of the map.
fn advise(tensor: &Tensor, advice: libc::c_int) {
    let begin = tensor.data_ptr() as usize;
    let end = begin + tensor.numel() * tensor.kind().elt_size_in_bytes();
    let (begin, end) = (begin.next_multiple_of(PAGE), end - end % PAGE);
    if begin < end {
        // SAFETY: the pages are inside the tensor's memory, which the caller keeps alive, and this
        // memory is the map of a file. `MADV_WILLNEED` has no observable effect. `MADV_DONTNEED` is
        // given only for a tensor that is being copied: the map itself is never handed out, so
        // nothing has written there, and the pages are read from the file again when they are
        // accessed.
        let _ = unsafe { libc::madvise(begin as *mut libc::c_void, end - begin, advice) };
    }
}

/// Maps the whole file as a private mapping.
fn map(path: &Path, file: &File) -> Result<Tensor, Refusal> {
    let bad = |reason: String| refuse(path, format_args!("not a safetensors file: {reason}"));
    let size = file.metadata().map_err(in_file(path))?.len();
    let size = i64::try_from(size).map_err(|_| bad(format!("{size} bytes long")))?;
    // Opened by its descriptor, so that it is the file whose header was read, even if it has been
    // renamed or replaced.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let map = Tensor::f_from_file(&name, false, size, (Kind::Uint8, Device::Cpu));
    map.map_err(|err| bad(message(&err.to_string()).to_owned()))
}

/// Returns the element type, if it is one that weights may have.
pub(super) fn kind_of(dtype: Dtype) -> Option<Kind> {
    match dtype {
        Dtype::F64 => Some(Kind::Double),
        Dtype::F32 => Some(Kind::Float),
        Dtype::F16 => Some(Kind::Half),
        Dtype::BF16 => Some(Kind::BFloat16),
        _ => None,
    }
}

/// Reads the header of the file at `path` and returns the byte at which its data begins, and its
/// tensors by name. They cover the rest of the file without gap or overlap.
///
/// # Errors
/// Returns a [`Refusal`] that names the file.
fn read_header(path: &Path, file: &mut File) -> Result<(i64, Entries), Refusal> {
    let size = file.metadata().map_err(in_file(path))?.len();
    let json = header(file, size).map_err(|err| err.to_string());
    let entries = json.and_then(|json| entries(&json, size));
    entries.map_err(|reason| refuse(path, format_args!("not a safetensors file: {reason}")))
}

/// Returns the tensors that `json`, in a file of `size` bytes, describes.
fn entries(json: &[u8], size: u64) -> Result<(i64, Entries), String> {
    let broken = |err: serde_json::Error| format!("header: {err}");
    // Deserialisation refuses gaps, overlaps, overflows, and shapes that do not match the byte
    // ranges. So a name that is there twice leaves a gap, or has the same bytes both times, and the
    // type and shape that come last.
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
            Err(err) => Err(kind(err.to_string())),
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
