//! Bindings of the matrix products in `shim/products.cc`.

use crate::error::TorchError;
use crate::ffi::library::Library;
use crate::ffi::{LastWords, RawTensor, checked, raw};
use libc::{c_int, c_void};
use std::ptr;
use tch::Tensor;

type AddLinear =
    unsafe extern "C" fn(RawTensor, RawTensor, RawTensor, RawTensor, RawTensor) -> c_int;

/// The functions for matrix products.
#[derive(Clone, Copy)]
pub struct ProductShim {
    last_words: LastWords,
    add_linear: AddLinear,
}

impl ProductShim {
    /// Looks up every function of the loaded shim.
    pub fn bind(shim: Library, last_words: LastWords) -> Result<Self, TorchError> {
        Ok(Self {
            last_words,
            add_linear: function!(shim, c"rr_cuda_add_linear" as AddLinear),
        })
    }

    /// Computes out = sum + x·weightᵀ + bias.
    pub fn add_linear(
        &self,
        [out, sum, x, weight]: [&Tensor; 4],
        bias: Option<&Tensor>,
    ) -> Result<(), TorchError> {
        let bias = bias.map_or(ptr::null_mut(), raw);
        // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, and all of them outlive the call. The
        // call launches work in stream order, and libtorch's allocator does not give their memory
        // to other work on this stream before that work is done. Shapes, types and devices that do
        // not match throw an exception.
        checked(
            unsafe { (self.add_linear)(raw(out), raw(sum), raw(x), raw(weight), bias) },
            self.last_words,
        )
    }
}
