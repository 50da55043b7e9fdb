//! Why a checkpoint is refused.

use std::io;
use std::path::{Path, PathBuf};

use tch::Device;

/// Why a checkpoint is refused; every text names the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read or written.
    #[error("`{}`: {err}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        err: io::Error,
    },
    /// A file is not JSON, or not of the needed form.
    #[error("`{}`: {err}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        err: serde_json::Error,
    },
    /// A field has a wrong type or value.
    #[error("`{}`: `{field}` is {found}, {wanted}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field, with the objects around it: `vision_config.depth`.
        field: String,
        /// Its value, or `missing`.
        found: String,
        /// What is accepted, as a clause.
        wanted: String,
    },
    /// A directory lacks a file.
    #[error("`{}` has no {wanted}", dir.display())]
    NoFile {
        /// The directory.
        dir: PathBuf,
        /// The file or files, as a clause.
        wanted: String,
    },
    /// A safetensors file is truncated, overlapping or otherwise not what it should be.
    #[error("`{}`: not a safetensors file: {reason}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The index of a sharded checkpoint contradicts itself or its shards.
    #[error("`{}`: {reason}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The tensors are not those of the network that the configuration describes.
    #[error("`{}`: {problems}", dir.display())]
    Tensors {
        /// The model directory.
        dir: PathBuf,
        /// All missing, wrong and unexpected tensors.
        problems: String,
    },
    /// The tensors are fine, and the device does not take them.
    #[error("`{}`: its {bytes} bytes of weights cannot be brought to {}: {reason}", dir.display(), name(*device))]
    Device {
        /// The model directory.
        dir: PathBuf,
        /// Bytes of all tensors there.
        bytes: u64,
        /// Where they were to be.
        device: Device,
        /// What libtorch or the driver says.
        reason: String,
    },
}

/// As torch writes it.
fn name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}

impl LoadError {
    /// For `map_err` of an operation on a file.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |err| Self::Io { path: path.to_owned(), err }
    }
}
