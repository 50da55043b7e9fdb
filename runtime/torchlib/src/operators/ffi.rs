//! Bindings of `shim/operators.cc`; all unsafe code of `operators` is in this file.

use std::marker::PhantomData;
use std::ptr::NonNull;

use libc::c_int;
use tch::Tensor;

use crate::ffi::{RawTensor, check, made, raw};

/// An opaque `c10::InferenceMode`.
#[repr(C)]
struct RawMode([u8; 0]);

unsafe extern "C" {
    fn rr_linear_activation(
        x: RawTensor,
        weight: RawTensor,
        bias: RawTensor,
        use_gelu: bool,
        out: *mut RawTensor,
    ) -> c_int;
    fn rr_normal(seed: u64, sizes: *const i64, dims: usize, out: *mut RawTensor) -> c_int;
    fn rr_inference_mode_begin() -> *mut RawMode;
    fn rr_inference_mode_end(mode: *mut RawMode);
}

/// Computes ATen's `_addmm_activation` of `x` `[rows, in]`, weight `[in, out]` and bias `[out]`,
/// with GELU or ReLU.
pub(super) fn linear_activation([x, weight, bias]: [&Tensor; 3], use_gelu: bool) -> Tensor {
    // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, and the three tensors outlive the call.
    let compute = |out: &mut RawTensor| unsafe {
        rr_linear_activation(raw(x), raw(weight), raw(bias), use_gelu, out)
    };
    // SAFETY: the shim writes a new `at::Tensor*` for this caller alone.
    unsafe { made(compute, check) }.unwrap_or_else(|exception| panic!("{exception}"))
}

/// Draws standard normal numbers on the CPU with a generator of their own: float32 of this shape.
/// They are those that `torch.manual_seed(seed); torch.randn(shape)` gives in Python.
///
/// # Panics
/// Panics like tch's own operators, with libtorch's message.
pub fn normal(seed: u64, shape: &[i64]) -> Tensor {
    // SAFETY: the sizes outlive the call, and `shape` has as many as the call is told; a negative
    // one throws an exception.
    let draw = |out: &mut RawTensor| unsafe { rr_normal(seed, shape.as_ptr(), shape.len(), out) };
    // SAFETY: the shim writes a new `at::Tensor*` for this caller alone.
    unsafe { made(draw, check) }.unwrap_or_else(|exception| panic!("{exception}"))
}

/// A guard for libtorch's inference mode (`c10::InferenceMode`) on this thread. Operators cost less
/// in it than under [`tch::no_grad`]. Tensors created in it can neither be trained later nor be
/// modified in place outside of it.
///
/// The guards of one thread must be dropped in the reverse order of their creation, as local
/// variables are.
#[must_use = "the mode ends when the guard is dropped"]
pub struct InferenceMode {
    mode: NonNull<RawMode>,
    // The inference mode is a setting of the thread.
    _not_send: PhantomData<*const ()>,
}

impl InferenceMode {
    /// Enters inference mode until the guard is dropped.
    pub fn begin() -> Self {
        // SAFETY: the function has no preconditions; `new` never returns null.
        let mode = unsafe { NonNull::new_unchecked(rr_inference_mode_begin()) };
        Self {
            mode,
            _not_send: PhantomData,
        }
    }
}

impl Drop for InferenceMode {
    fn drop(&mut self) {
        // SAFETY: this guard owns the box, and drops it once and on the thread that began the mode,
        // because the type is not `Send`.
        unsafe { rr_inference_mode_end(self.mode.as_ptr()) }
    }
}
