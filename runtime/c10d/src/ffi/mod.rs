//! Bindings of the two shims; all unsafe code of this crate is in this folder and in
//! `operators/ffi.rs`.
//!
//! Handles own their C++ box. A call returns a status, and the error message of a failure is kept
//! in a thread-local variable. Soundness is decided here; the meaning of the calls is in `store`,
//! `group` and `cuda`.

use crate::ffi::exception::{CppException, ExceptionKind};
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};
use std::ptr::NonNull;
use std::time::Duration;
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
pub mod exception;
pub mod graph;
pub mod group;
pub mod library;
pub mod package;
pub mod product;
pub mod store;
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

pub(crate) fn check(status: c_int) -> Result<(), CppException> {
    checked(status, rr_last_words)
}

fn checked(status: c_int, last_words: LastWords) -> Result<(), CppException> {
    let kind = match status {
        0 => return Ok(()),
        2 => ExceptionKind::Store,
        3 => ExceptionKind::Network,
        4 => ExceptionKind::OutOfMemory,
        _ => ExceptionKind::Other,
    };
    // SAFETY: the shim returns `std::string::c_str` of a thread-local variable, which does not
    // change until the next failure on this thread; the text is copied before that.
    let text = unsafe { CStr::from_ptr(last_words()) }
        .to_string_lossy()
        .into_owned();
    Err(CppException { kind, text })
}

/// Converts a wait to milliseconds, at least one, because c10d takes zero for an infinite wait.
fn millis(limit: Duration) -> i64 {
    i64::try_from(limit.as_millis())
        .unwrap_or(i64::MAX)
        .clamp(1, MILLIS_PER_YEAR)
}

/// Upper limit of waits: c10d adds them to the clock in nanoseconds of 64 bits, and a year is far
/// below their overflow.
const MILLIS_PER_YEAR: i64 = 365 * 24 * 3600 * 1000;

fn c_string(text: &str) -> Result<CString, CppException> {
    CString::new(text).map_err(|_| CppException {
        kind: ExceptionKind::Other,
        text: format!("`{text:?}` holds a zero byte"),
    })
}

fn boxed<T>(pointer: *mut T) -> NonNull<T> {
    NonNull::new(pointer).expect("the shim writes a box before it returns success")
}

pub(crate) fn raw(tensor: &Tensor) -> RawTensor {
    tensor.as_ptr().cast_mut().cast()
}
