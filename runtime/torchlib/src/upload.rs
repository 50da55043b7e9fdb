//! Copies from host memory to one GPU, in order, while the caller prepares the next ones, and the
//! host memory from which it copies.

use crate::cuda::{Cuda, number};
use crate::ffi::{RawTensor, RawUpload, boxed, made, raw};
use crate::torch_error::TorchError;
use std::ops::Range;
use std::ptr::{self, NonNull};
use tch::{Device, Kind, Tensor};

/// A stream of copies to one card, in groups that are called slots, with an event for each.
pub struct Uploader {
    cuda: Cuda,
    upload: NonNull<RawUpload>,
}

// SAFETY: any thread may launch work on CUDA streams. The events of different slots are different
// objects, and the caller lets only one thread at a time use a slot.
unsafe impl Send for Uploader {}
// SAFETY: as above.
unsafe impl Sync for Uploader {}

impl Drop for Uploader {
    fn drop(&mut self) {
        // SAFETY: this handle owns the box and drops it once. A failure of the copies has been
        // reported by `wait`, or is no longer of interest.
        let _ = unsafe { (self.cuda.functions().rr_upload_free)(self.upload.as_ptr()) };
    }
}

impl Uploader {
    /// For tensors on card `device` that were made before this.
    pub fn new(cuda: Cuda, device: usize, slots: usize) -> Result<Self, TorchError> {
        let (mut upload, device, slots) = (ptr::null_mut(), number(device)?, number(slots)?);
        // SAFETY: `upload` is written before success is returned; an invalid index throws an
        // exception.
        cuda.check(unsafe { (cuda.functions().rr_upload_new)(device, slots, &mut upload) })?;
        let upload = boxed(upload);
        Ok(Self { cuda, upload })
    }

    /// Allocates pinned host memory, from which the GPU copies without the help of the CPU.
    pub fn pinned(&self, bytes: usize) -> Result<Staging, TorchError> {
        let (pinned, bytes) = (self.cuda.functions().rr_upload_pinned, number(bytes)?);
        // SAFETY: any number of bytes is allowed, and `out` outlives the call.
        let allocate = |out: &mut RawTensor| unsafe { pinned(bytes, out) };
        // SAFETY: the shim writes a new `at::Tensor*` for this caller alone.
        let tensor = unsafe { made(allocate, |status| self.cuda.check(status)) };
        Ok(Staging(tensor?))
    }

    /// Starts copying the second tensor of each pair to the first, which has as many elements.
    /// [`Self::wait`] for the slot returns when all copies are done. Until then their memory is
    /// used; it stays allocated as long as the caller keeps the tensors, or those of which they are
    /// views.
    pub fn send(&self, slot: usize, pairs: &[(Tensor, Tensor)]) -> Result<(), TorchError> {
        let (shim, upload) = (self.cuda.functions(), self.upload.as_ptr());
        for (target, source) in pairs {
            // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, which outlives the call.
            let status = unsafe { (shim.rr_upload_copy)(upload, raw(target), raw(source)) };
            self.cuda.check(status)?;
        }
        let slot = number(slot)?;
        // SAFETY: the box lives as long as `self`; an invalid slot throws an exception.
        self.cuda
            .check(unsafe { (shim.rr_upload_mark)(upload, slot) })
    }

    /// Returns when the copies of a slot are done.
    pub fn wait(&self, slot: usize) -> Result<(), TorchError> {
        let (upload, slot) = (self.upload.as_ptr(), number(slot)?);
        // SAFETY: as in `send`.
        self.cuda
            .check(unsafe { (self.cuda.functions().rr_upload_wait)(upload, slot) })
    }
}

/// A staging buffer in host memory, for bytes on their way to a device: `[n]`, `u8`, contiguous.
#[derive(Debug)]
pub struct Staging(Tensor);

impl Staging {
    /// Ordinary memory, for a machine without CUDA.
    pub fn pageable(bytes: i64) -> Self {
        Self(Tensor::zeros([bytes], (Kind::Uint8, Device::Cpu)))
    }

    /// Returns the whole buffer for writing. All copies that read it must have finished.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        debug_assert!(self.0.device() == Device::Cpu && self.0.kind() == Kind::Uint8);
        // SAFETY: the tensor owns `numel` contiguous bytes of host memory as long as it lives, it
        // is never handed out, and no other reference is made from it. Its views are pointers in
        // libtorch that the callers of this method no longer read (a device that did would read
        // other bytes: the copies are waited for before). The driver provided the memory or it was
        // filled with zeros, so every byte is initialised.
        unsafe { std::slice::from_raw_parts_mut(self.0.data_ptr().cast(), self.0.numel()) }
    }

    /// Returns a part as elements of `kind`; start and length of the range must be multiples of
    /// their size.
    pub fn view(&self, range: Range<usize>, kind: Kind) -> Tensor {
        self.0
            .narrow(0, range.start as i64, range.len() as i64)
            .view_dtype(kind)
    }
}
