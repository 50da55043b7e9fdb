//! Writes a checkpoint in the layout of the released one.
//!
//! ```text
//! config.json
//! model.safetensors                                                up to 5 GB, or
//! model-00001-of-00003.safetensors … model.safetensors.index.json
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use jobs::layout::{write_whole, write_whole_with};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Map, Value, json};
use tch::{Kind, Tensor};

use crate::layout::Spec;
use crate::weights::{INDEX, Named, SINGLE};
use crate::{LoadError, ModelConfig};

/// Maximum size of the tensors in a shard, in bytes, as in the reference's library; a larger tensor
/// gets a shard of its own.
pub const MAX_SHARD_BYTES: u64 = 5_000_000_000;
/// Number of elements that are written at a time.
const PIECE: i64 = 16 << 20;

/// Writes `config.json` and the tensors, all converted to `kind`. Removes the files of a checkpoint
/// that was in the directory before.
///
/// # Errors
/// Returns [`LoadError::Io`] with the name of the file.
pub fn write_checkpoint(
    dir: &Path,
    named: &Named,
    kind: Kind,
    model: &ModelConfig,
) -> Result<(), LoadError> {
    let specs: Vec<_> = named
        .iter()
        .map(|(name, tensor)| (name.clone(), tensor.size()))
        .collect();
    write_config(&dir.join("config.json"), &model.to_json())?;
    write_tensors(dir, &specs, kind, MAX_SHARD_BYTES, |at| {
        named[at].1.shallow_clone()
    })
}

/// Writes an indented JSON file atomically.
///
/// # Errors
/// Returns [`LoadError::Io`] with the name of the file.
pub fn write_config(path: &Path, value: &Value) -> Result<(), LoadError> {
    write_whole(path, format!("{value:#}\n").as_bytes()).map_err(LoadError::io(path))
}

/// Writes the tensors that `make` creates for each index into `specs`, one after the other, so that
/// only one of them is in memory.
///
/// # Errors
/// Returns [`LoadError::Io`] with the name of the file.
pub fn write_tensors(
    dir: &Path,
    specs: &[Spec],
    kind: Kind,
    max_shard_bytes: u64,
    mut make: impl FnMut(usize) -> Tensor,
) -> Result<(), LoadError> {
    let shards = shards(specs, kind, max_shard_bytes);
    let name = |at: usize| match shards.len() {
        1 => SINGLE.to_owned(),
        count => format!("model-{:05}-of-{count:05}.safetensors", at + 1),
    };
    let mut weight_map = Map::new();
    let mut first = 0;
    for (at, specs) in shards.iter().enumerate() {
        let path = dir.join(name(at));
        let write = |file: &mut File| write_shard(file, specs, kind, |at| make(first + at));
        write_whole_with(&path, write).map_err(LoadError::io(&path))?;
        weight_map.extend(
            specs
                .iter()
                .map(|(tensor, _)| (tensor.clone(), Value::from(name(at)))),
        );
        first += specs.len();
    }
    if shards.len() > 1 {
        let total: u64 = specs.iter().map(|spec| bytes(spec, kind)).sum();
        write_config(
            &dir.join(INDEX),
            &json!({"metadata": {"total_size": total}, "weight_map": weight_map}),
        )?;
    }
    let names: Vec<_> = (0..shards.len()).map(name).collect();
    remove_others(dir, &names).map_err(LoadError::io(dir))
}

/// Divides the tensors into runs of at most `most` bytes.
fn shards(specs: &[Spec], kind: Kind, most: u64) -> Vec<&[Spec]> {
    let mut shards = Vec::new();
    let (mut first, mut size) = (0, 0);
    for (at, spec) in specs.iter().enumerate() {
        if at > first && size + bytes(spec, kind) > most {
            shards.push(&specs[first..at]);
            (first, size) = (at, 0);
        }
        size += bytes(spec, kind);
    }
    shards.push(&specs[first..]);
    shards
}

fn bytes((_, shape): &Spec, kind: Kind) -> u64 {
    shape.iter().product::<i64>().unsigned_abs() * kind.elt_size_in_bytes() as u64
}

fn write_shard(
    file: &mut File,
    specs: &[Spec],
    kind: Kind,
    mut make: impl FnMut(usize) -> Tensor,
) -> io::Result<()> {
    let header = header(specs, kind)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    for (at, (name, shape)) in specs.iter().enumerate() {
        let tensor = make(at);
        if tensor.size() != *shape {
            let reason = format!("tensor `{name}` is {:?}, expected {shape:?}", tensor.size());
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        write_tensor(file, &tensor, kind)?;
    }
    Ok(())
}

/// Builds the safetensors header with the tensors' positions, padded to 8 bytes as the format
/// requires.
fn header(specs: &[Spec], kind: Kind) -> io::Result<Vec<u8>> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
    let dtype = dtype(kind).ok_or_else(|| invalid(format!("weights cannot be {kind:?}")))?;
    let mut begin = 0;
    let mut place = |spec: &Spec| {
        let data_offsets = (begin, begin + bytes(spec, kind) as usize);
        begin = data_offsets.1;
        let shape = spec
            .1
            .iter()
            .map(|side| side.unsigned_abs() as usize)
            .collect();
        (
            spec.0.clone(),
            TensorInfo {
                dtype,
                shape,
                data_offsets,
            },
        )
    };
    let format = [("format".to_owned(), "pt".to_owned())].into();
    let places = specs.iter().map(&mut place).collect();
    let metadata = Metadata::new(Some(format), places).map_err(|err| invalid(err.to_string()))?;
    let mut json = serde_json::to_vec(&metadata)?;
    json.resize(json.len().next_multiple_of(8), b' ');
    Ok(json)
}

/// Writes the values in row-major order and little endian, the byte order of all machines on which
/// libtorch runs.
fn write_tensor(file: &mut File, tensor: &Tensor, kind: Kind) -> io::Result<()> {
    let flat = tensor.detach().reshape(-1);
    let count = flat.size()[0];
    let mut buffer = vec![0; count.min(PIECE) as usize * kind.elt_size_in_bytes()];
    for begin in (0..count).step_by(PIECE as usize) {
        let piece = flat
            .narrow(0, begin, PIECE.min(count - begin))
            .to_kind(kind);
        let size = piece.numel() * kind.elt_size_in_bytes();
        piece
            .f_copy_data_u8(&mut buffer[..size], piece.numel())
            .map_err(io::Error::other)?;
        file.write_all(&buffer[..size])?;
    }
    Ok(())
}

/// Removes the shards of an earlier checkpoint that had another number of them.
fn remove_others(dir: &Path, names: &[String]) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_shard =
            name.starts_with("model-") && name.contains("-of-") && name.ends_with(".safetensors");
        let stale = match name.as_str() {
            SINGLE => true,
            INDEX => names.len() == 1,
            _ => is_shard,
        };
        if stale && !names.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn dtype(kind: Kind) -> Option<Dtype> {
    match kind {
        Kind::Double => Some(Dtype::F64),
        Kind::Float => Some(Dtype::F32),
        Kind::Half => Some(Dtype::F16),
        Kind::BFloat16 => Some(Dtype::BF16),
        _ => None,
    }
}
