//! One safetensors file, mapped.
//!
//! The map is a tensor of bytes that libtorch owns, and every tensor in the file is a view of it: the map lives exactly
//! as long as something looks at it. It is private, so that writing to a tensor (training does) copies a page and never
//! reaches the file; pages that are only read are the page cache's, shared by all ranks of a node.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use safetensors::Dtype;
use tch::{Device, Kind, Tensor};

use super::super::LoadError;
use super::header::{self, Entry};

/// A mapped file and what lies in it.
#[derive(Debug)]
pub(super) struct Shard {
    /// `[file size]`, `u8`.
    map: Tensor,
}

impl Shard {
    /// Maps the file and reads its header.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<(String, Entry)>), LoadError> {
        let mut file = File::open(path).map_err(LoadError::io(path))?;
        let entries = header::read(path, &mut file)?;
        let map = map(path, &file)?;
        Ok((Self { map }, entries))
    }

    /// The tensor on `device` in `kind`: a view of the map where nothing has to change, else a copy, after which the
    /// map's pages are given back.
    pub(super) fn tensor(&self, entry: &Entry, kind: Kind, device: Device) -> Option<Tensor> {
        let stored = kind_of(entry.dtype)?;
        let aligned = entry.bytes.start % stored.elt_size_in_bytes() as i64 == 0;
        if aligned && stored == kind && device == Device::Cpu {
            self.advise(&entry.bytes, libc::MADV_WILLNEED);
            return Some(self.bytes(entry).view_dtype(stored).view(&entry.shape[..]));
        }
        self.advise(&entry.bytes, libc::MADV_WILLNEED);
        let bytes = if aligned { self.bytes(entry) } else { self.bytes(entry).copy() };
        let tensor = bytes.view_dtype(stored).view(&entry.shape[..]).to_device(device).to_kind(kind);
        drop(bytes);
        self.advise(&entry.bytes, libc::MADV_DONTNEED);
        Some(tensor)
    }

    fn bytes(&self, entry: &Entry) -> Tensor {
        self.map.narrow(0, entry.bytes.start, entry.bytes.end - entry.bytes.start)
    }

    fn advise(&self, _bytes: &Range<i64>, _advice: libc::c_int) {}
}

/// Maps the whole file, privately.
fn map(path: &Path, file: &File) -> Result<Tensor, LoadError> {
    let bad = |reason: String| LoadError::Safetensors { path: path.to_owned(), reason };
    let size = file.metadata().map_err(LoadError::io(path))?.len();
    let size = i64::try_from(size).map_err(|_| bad(format!("{size} bytes long")))?;
    let name = path.to_str().ok_or_else(|| bad("its path is not UTF-8, which libtorch needs".to_owned()))?;
    Tensor::f_from_file(name, false, size, (Kind::Uint8, Device::Cpu)).map_err(|err| bad(err.to_string()))
}

/// The element type, if weights may have it.
pub(super) fn kind_of(dtype: Dtype) -> Option<Kind> {
    match dtype {
        Dtype::F64 => Some(Kind::Double),
        Dtype::F32 => Some(Kind::Float),
        Dtype::F16 => Some(Kind::Half),
        Dtype::BF16 => Some(Kind::BFloat16),
        _ => None,
    }
}
