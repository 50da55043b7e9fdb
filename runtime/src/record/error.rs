//! Why something is not recorded.

use std::path::Path;

use crate::env::{Frame, ImageSize};

/// Why something is not recorded: a sentence that names the file, the camera or the column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(pub String);

impl RecordError {
    /// Creates an error about a file.
    pub(in crate::record) fn file(path: &Path, reason: impl ToString) -> Self {
        Self(format!("`{}`: {}", path.display(), reason.to_string()))
    }

    /// Creates an error of HDF5 about a file.
    pub(in crate::record) fn hdf5(path: &Path, err: &hdf5::Error) -> Self {
        Self::file(path, hdf5_reason(err))
    }
}

/// Checks that an image has the bytes of its size.
pub(in crate::record) fn check_bytes(camera: &str, frame: &Frame) -> Result<(), String> {
    let (bytes, size) = (frame.rgb.len(), frame.size());
    match bytes == size.rgb_bytes() {
        true => Ok(()),
        false => Err(format!("camera `{camera}` gave {bytes} bytes for {size}")),
    }
}

/// Checks that the size of an image is that of the images before.
pub(in crate::record) fn check_size(
    camera: &str,
    before: ImageSize,
    now: ImageSize,
) -> Result<(), String> {
    match before == now {
        true => Ok(()),
        false => Err(format!("camera `{camera}` changed from {before} to {now}")),
    }
}

/// Returns the message of an HDF5 error, reduced to the system's error message if there is one: the
/// error stack ends in frames like `file write failed: …, errno = 28, error message = 'No space
/// left on device', …`.
pub(in crate::record) fn hdf5_reason(err: &hdf5::Error) -> String {
    const MARK: &str = "error message = '";
    let Some(stack) = err.stack() else {
        return err.to_string();
    };
    let words = stack.iter().find_map(|frame| {
        let (_, rest) = frame.desc().split_once(MARK)?;
        rest.split('\'').next()
    });
    match words {
        Some(words) => format!("{words} ({})", stack.description()),
        None => err.to_string(),
    }
}
