//! The reasons for refusing a checkpoint.

use std::io;
use std::path::{Path, PathBuf};

use tch::Device;

/// The reason why a checkpoint is refused; every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file cannot be read or written.
    #[error("`{}`: {err}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        err: io::Error,
    },
    /// A file is not JSON, or does not have the required structure.
    #[error("`{}`: {err}", path.display())]
    Json {
        /// Path of the file.
        path: PathBuf,
        /// Position and reason.
        #[source]
        err: serde_json::Error,
    },
    /// A file of the processor is not JSON.
    #[error("`{}`: not JSON: {err}", path.display())]
    NotJson {
        /// Path of the file.
        path: PathBuf,
        /// Position and reason.
        #[source]
        err: serde_json::Error,
    },
    /// The tokenizer or the chat template cannot be used.
    #[error("`{}`: {reason}", path.display())]
    Text {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it, or what went wrong in it.
        reason: String,
    },
    /// A field has a wrong type or value.
    #[error("`{}`: `{field}` is {found}, {wanted}", path.display())]
    Field {
        /// Path of the file.
        path: PathBuf,
        /// The field with its enclosing objects, such as `vision_config.depth`.
        field: String,
        /// The field's value, or `missing`.
        found: String,
        /// The accepted values, as a clause.
        wanted: String,
    },
    /// A directory lacks a file.
    #[error("`{}` has no {wanted}", dir.display())]
    NoFile {
        /// Path of the directory.
        dir: PathBuf,
        /// The missing file or files, as a clause.
        wanted: String,
    },
    /// A safetensors file is truncated, has overlapping tensors or is otherwise malformed.
    #[error("`{}`: not a safetensors file: {reason}", path.display())]
    Safetensors {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the file.
        reason: String,
    },
    /// The index of a sharded checkpoint contradicts itself or its shards.
    #[error("`{}`: {reason}", path.display())]
    Index {
        /// Path of the index.
        path: PathBuf,
        /// What is wrong with the index.
        reason: String,
    },
    /// The tensors are not those of the network that the configuration describes.
    #[error("`{}`: {problems}", dir.display())]
    Tensors {
        /// Path of the model directory.
        dir: PathBuf,
        /// All missing, wrong and unexpected tensors.
        problems: String,
    },
    /// The tensors are valid, but the device cannot hold them.
    #[error("`{}`: its {bytes} bytes of weights cannot be brought to {}: {reason}", dir.display(), name(*device))]
    Device {
        /// Path of the model directory.
        dir: PathBuf,
        /// Size of all tensors together on the device, in bytes.
        bytes: u64,
        /// The target device.
        device: Device,
        /// The error message of libtorch or of the driver.
        reason: String,
    },
}

/// Returns the device's name as torch writes it.
fn name(device: Device) -> String {
    match device {
        Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_owned(),
    }
}

impl LoadError {
    /// Returns an error about the tokenizer or the chat template at `path`.
    pub(crate) fn text(path: &Path, reason: impl ToString) -> Self {
        Self::Text {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }

    /// Returns a closure for `map_err` after an operation on the file at `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |err| Self::Io {
            path: path.to_owned(),
            err,
        }
    }
}
