//! Calls of the shims: a call returns a status, and the error message of a failure is kept in a
//! thread-local variable. Handles own their C++ box.

use crate::error::TorchError;
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};
use std::ptr::{self, NonNull};
use tch::Tensor;

pub mod library;

/// An opaque `at::Tensor*`.
pub(crate) type RawTensor = *mut c_void;

/// An opaque `RrGraph`.
#[repr(C)]
pub(crate) struct RawGraph([u8; 0]);

/// An opaque `RrUpload`.
#[repr(C)]
pub(crate) struct RawUpload([u8; 0]);

/// A function of a shim that returns the message of this thread's last failure.
pub(crate) type LastWords = unsafe extern "C" fn() -> *const c_char;

unsafe extern "C" {
    fn rr_last_words() -> *const c_char;
}

/// Converts the status of the shim that is linked into the program.
pub(crate) fn check(status: c_int) -> Result<(), TorchError> {
    checked(status, rr_last_words)
}

/// Converts a status of the shim with these last words.
pub(crate) fn checked(status: c_int, last_words: LastWords) -> Result<(), TorchError> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the shim returns `std::string::c_str` of a thread-local variable, which does not
    // change until the next failure on this thread; the text is copied before that.
    let text = unsafe { CStr::from_ptr(last_words()) }.to_string_lossy();
    Err(TorchError::thrown(&text))
}

pub(crate) fn c_string(text: &str) -> Result<CString, TorchError> {
    CString::new(text).map_err(|_| TorchError::new(format!("`{text:?}` holds a zero byte")))
}

pub(crate) fn boxed<T>(pointer: *mut T) -> NonNull<T> {
    NonNull::new(pointer).expect("the shim writes a box before it returns success")
}

pub(crate) fn raw(tensor: &Tensor) -> RawTensor {
    tensor.as_ptr().cast_mut().cast()
}

/// Returns the tensor that a shim makes; `check` converts the status of `call`.
///
/// # Safety
/// If `call` succeeds, it must have written a new `at::Tensor*` that nothing else owns.
pub(crate) unsafe fn made(
    call: impl FnOnce(&mut RawTensor) -> c_int,
    check: impl FnOnce(c_int) -> Result<(), TorchError>,
) -> Result<Tensor, TorchError> {
    let mut tensor = ptr::null_mut();
    check(call(&mut tensor))?;
    // SAFETY: the caller promises it.
    Ok(unsafe { Tensor::from_ptr(tensor.cast()) })
}
