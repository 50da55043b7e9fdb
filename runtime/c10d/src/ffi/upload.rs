//! Bindings of `shim/upload.cc`, and host memory from which a GPU copies.

use crate::error::TorchError;
use crate::ffi::library::Library;
use crate::ffi::{LastWords, RawTensor, checked};
use libc::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::ptr::NonNull;
use tch::{Device, Kind, Tensor};

/// An opaque `RrUpload`.
#[repr(C)]
struct RawUpload([u8; 0]);

type NewPinned = unsafe extern "C" fn(i64, *mut RawTensor) -> c_int;
type NewUpload = unsafe extern "C" fn(c_int, c_int, *mut *mut RawUpload) -> c_int;
type FreeUpload = unsafe extern "C" fn(*mut RawUpload) -> c_int;
type CopyTensor = unsafe extern "C" fn(*mut RawUpload, RawTensor, RawTensor) -> c_int;
type OfSlot = unsafe extern "C" fn(*mut RawUpload, c_int) -> c_int;

/// The functions of `shim/upload.cc`.
#[derive(Clone, Copy)]
pub struct UploadShim {
    last_words: LastWords,
    new_pinned: NewPinned,
    new: NewUpload,
    free: FreeUpload,
    copy: CopyTensor,
    mark: OfSlot,
    wait: OfSlot,
}

impl UploadShim {
    /// Looks up every function of the loaded shim.
    pub fn bind(shim: Library, last_words: LastWords) -> Result<Self, TorchError> {
        Ok(Self {
            last_words,
            new_pinned: function!(shim, c"rr_upload_pinned" as NewPinned),
            new: function!(shim, c"rr_upload_new" as NewUpload),
            free: function!(shim, c"rr_upload_free" as FreeUpload),
            copy: function!(shim, c"rr_upload_copy" as CopyTensor),
            mark: function!(shim, c"rr_upload_mark" as OfSlot),
            wait: function!(shim, c"rr_upload_wait" as OfSlot),
        })
    }

    fn check(&self, status: c_int) -> Result<(), TorchError> {
        checked(status, self.last_words)
    }
}

/// A stream of copies to one GPU, with an event for each of its slots.
pub struct UploadHandle {
    shim: UploadShim,
    raw: NonNull<RawUpload>,
}

// SAFETY: any thread may launch work on CUDA streams. The events of different slots are different
// objects, and the caller lets only one thread at a time use a slot.
unsafe impl Send for UploadHandle {}
// SAFETY: as above.
unsafe impl Sync for UploadHandle {}

impl Drop for UploadHandle {
    fn drop(&mut self) {
        // SAFETY: this handle owns the box and drops it once. A failure of the copies has been
        // reported by `wait`, or is no longer of interest.
        let _ = unsafe { (self.shim.free)(self.raw.as_ptr()) };
    }
}

impl UploadHandle {
    pub fn new(shim: UploadShim, device: i32, slots: i32) -> Result<Self, TorchError> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is written before success is returned; an invalid index throws an
        // exception.
        shim.check(unsafe { (shim.new)(device, slots, &mut raw) })?;
        let raw = NonNull::new(raw).expect("the shim writes a box before it returns success");
        Ok(Self { shim, raw })
    }

    /// Allocates pinned memory of `bytes` bytes.
    pub fn pinned(&self, bytes: i64) -> Result<Staging, TorchError> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is written before success is returned.
        let status = unsafe { (self.shim.new_pinned)(bytes, &mut raw) };
        self.shim.check(status)?;
        // SAFETY: the shim has created an `at::Tensor` with `new` for this caller alone, which is
        // what tch deletes.
        Ok(Staging(unsafe { Tensor::from_ptr(raw.cast()) }))
    }

    /// Starts to copy all of `source` to `target`, which has the same number of elements.
    ///
    /// The memory of both is used until a `wait` for a later mark. Both are counted references: the
    /// memory stays allocated as long as the caller keeps the tensors, or the tensors of which they
    /// are views.
    pub fn copy(&self, target: &Tensor, source: &Tensor) -> Result<(), TorchError> {
        let [target, source] = [target, source].map(|tensor| tensor.as_ptr().cast_mut().cast());
        // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, which outlives the call.
        self.shim
            .check(unsafe { (self.shim.copy)(self.raw.as_ptr(), target, source) })
    }

    pub fn mark(&self, slot: i32) -> Result<(), TorchError> {
        // SAFETY: the box lives as long as `self`; an invalid slot throws an exception.
        self.shim
            .check(unsafe { (self.shim.mark)(self.raw.as_ptr(), slot) })
    }

    pub fn wait(&self, slot: i32) -> Result<(), TorchError> {
        // SAFETY: as in `mark`.
        self.shim
            .check(unsafe { (self.shim.wait)(self.raw.as_ptr(), slot) })
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
        // other bytes, which the ring of slots prevents). The driver provided the memory or it was
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
