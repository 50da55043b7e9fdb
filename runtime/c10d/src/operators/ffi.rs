//! `dist/shim/operators.cc` as Rust sees it: the unsafe file of `operators`.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use libc::{c_int, c_void};
use tch::Tensor;

use crate::ffi::{RawTensor, check, raw};

/// `c10::InferenceMode`.
#[repr(C)]
struct RawMode([u8; 0]);

unsafe extern "C" {
    fn rr_linear_activation(
        x: RawTensor,
        weight: RawTensor,
        bias: RawTensor,
        use_gelu: bool,
        out: *mut *mut c_void,
    ) -> c_int;
    fn rr_inference_mode_begin() -> *mut RawMode;
    fn rr_inference_mode_end(mode: *mut RawMode);
}

/// ATen's `_addmm_activation` of `x` `[rows, in]`, weight `[in, out]` and bias `[out]`: GELU or ReLU.
pub(super) fn linear_activation([x, weight, bias]: [&Tensor; 3], use_gelu: bool) -> Tensor {
    let mut out = ptr::null_mut();
    // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, and the three outlive the call; `out` is written before success is
    // returned.
    let status = unsafe { rr_linear_activation(raw(x), raw(weight), raw(bias), use_gelu, &mut out) };
    if let Err(fault) = check(status) {
        panic!("{}", fault.text);
    }
    // SAFETY: the shim returns a new `at::Tensor*`, which the new `Tensor` owns from here on.
    unsafe { Tensor::from_ptr(out.cast()) }
}

/// libtorch's inference mode (`c10::InferenceMode`) for this thread, until it is dropped. Operators cost less than under
/// [`tch::no_grad`]; tensors made in it cannot be trained later, nor written to in place outside of it.
///
/// Guards of one thread end in the opposite order of their beginning, as local variables do.
#[must_use = "the mode ends when the guard is dropped"]
pub struct InferenceMode {
    mode: NonNull<RawMode>,
    // What it sets belongs to the thread.
    _not_send: PhantomData<*const ()>,
}

impl InferenceMode {
    /// Begins it.
    pub fn begin() -> Self {
        // SAFETY: has no condition; `new` never gives null.
        let mode = unsafe { NonNull::new_unchecked(rr_inference_mode_begin()) };
        Self { mode, _not_send: PhantomData }
    }
}

impl Drop for InferenceMode {
    fn drop(&mut self) {
        // SAFETY: the box is this guard's, dropped once and on the thread that began the mode: the type is not `Send`.
        unsafe { rr_inference_mode_end(self.mode.as_ptr()) }
    }
}
