//! Bindings of the two shims; all unsafe code of this crate is in this folder and in
//! `operators/ffi.rs`.
//!
//! Handles own their C++ box. A call returns a status, and the error message of a failure is kept
//! in a thread-local variable. Soundness is decided here; the meaning of the calls is in `cuda`.

use crate::error::TorchError;
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};
use std::ptr::NonNull;
use tch::Tensor;

/// Converts a symbol of the CUDA shim to a function pointer of the given type.
macro_rules! function {
    ($shim:ident, $name:literal as $type:ty) => {{
        let symbol = $shim.symbol($name)?;
        // SAFETY: build.rs made the library from `shim/cuda.cc`, `shim/products.cc` and
        // `shim/upload.cc`, where the function of this name has this type; function pointers and
        // data pointers have the same size on Linux.
        unsafe { std::mem::transmute::<*mut c_void, $type>(symbol) }
    }};
}

pub mod cuda;
pub mod graph;
pub mod library;
pub mod package;
pub mod product;
pub mod upload;

/// An opaque `at::Tensor*`.
pub(crate) type RawTensor = *mut c_void;

/// A function of a shim that returns the message of this thread's last failure.
type LastWords = unsafe extern "C" fn() -> *const c_char;

/// A function that takes the index of a device.
pub(crate) type OnDevice = unsafe extern "C" fn(c_int) -> c_int;

unsafe extern "C" {
    fn rr_last_words() -> *const c_char;
}

pub(crate) fn check(status: c_int) -> Result<(), TorchError> {
    checked(status, rr_last_words)
}

fn checked(status: c_int, last_words: LastWords) -> Result<(), TorchError> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the shim returns `std::string::c_str` of a thread-local variable, which does not
    // change until the next failure on this thread; the text is copied before that.
    let text = unsafe { CStr::from_ptr(last_words()) }.to_string_lossy();
    Err(TorchError::thrown(&text))
}

fn c_string(text: &str) -> Result<CString, TorchError> {
    CString::new(text).map_err(|_| TorchError::new(format!("`{text:?}` holds a zero byte")))
}

fn boxed<T>(pointer: *mut T) -> NonNull<T> {
    NonNull::new(pointer).expect("the shim writes a box before it returns success")
}

pub(crate) fn raw(tensor: &Tensor) -> RawTensor {
    tensor.as_ptr().cast_mut().cast()
}
