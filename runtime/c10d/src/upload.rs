//! Copies from host memory to one GPU, in order, while the caller prepares the next ones.

use crate::cuda::Cuda;
use crate::error::TorchError;
pub use crate::ffi::upload::Staging;
use crate::ffi::upload::UploadHandle;
use tch::Tensor;

/// A stream of copies to one card, in groups that are called slots.
pub struct Uploader(UploadHandle);

impl Uploader {
    /// For tensors on card `device` that were made before this.
    pub fn new(cuda: Cuda, device: usize, slots: usize) -> Result<Self, TorchError> {
        Ok(Self(UploadHandle::new(
            cuda.shim().upload(),
            number(device)?,
            number(slots)?,
        )?))
    }

    /// Allocates pinned host memory, from which the GPU copies without the help of the CPU.
    pub fn pinned(&self, bytes: usize) -> Result<Staging, TorchError> {
        Ok(self
            .0
            .pinned(i64::try_from(bytes).map_err(|_| misuse(bytes))?)?)
    }

    /// Starts copying the second tensor of each pair to the first. [`Self::wait`] for the slot
    /// returns when all copies are done.
    pub fn send(&self, slot: usize, pairs: &[(Tensor, Tensor)]) -> Result<(), TorchError> {
        for (target, source) in pairs {
            self.0.copy(target, source)?;
        }
        Ok(self.0.mark(number(slot)?)?)
    }

    /// Returns when the copies of a slot are done.
    pub fn wait(&self, slot: usize) -> Result<(), TorchError> {
        Ok(self.0.wait(number(slot)?)?)
    }
}

fn number(value: usize) -> Result<i32, TorchError> {
    i32::try_from(value).map_err(|_| misuse(value))
}

fn misuse(value: usize) -> TorchError {
    TorchError::new(format!(
        "{value} is beyond every number of cards, slots and bytes"
    ))
}
