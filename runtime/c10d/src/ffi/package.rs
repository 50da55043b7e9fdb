//! Bindings of the compiled packages in `shim/package.cc`.

use crate::error::TorchError;
use crate::ffi::{RawTensor, boxed, c_string, check, raw};
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::ptr;
use std::ptr::NonNull;
use tch::Tensor;

/// An opaque `RrPackage`.
#[repr(C)]
struct RawPackage([u8; 0]);

unsafe extern "C" {
    fn rr_package_load(
        library: *const c_char,
        kind: *const c_char,
        device: *const c_char,
        folder: *const c_char,
        out: *mut *mut RawPackage,
    ) -> c_int;
    fn rr_package_call_spec(package: *const RawPackage) -> *const c_char;
    fn rr_package_run(
        package: *mut RawPackage,
        inputs: *const RawTensor,
        count: usize,
        out: *mut RawTensor,
    ) -> c_int;
    fn rr_package_free(package: *mut RawPackage);
}

/// An owned, loaded package.
pub struct PackageHandle(NonNull<RawPackage>);

impl PackageHandle {
    /// Loads the compiled `library`, whose other files are in `folder`.
    ///
    /// The library is a program, which runs with all rights of this process: the caller has made
    /// sure that the user wants that.
    pub fn load(library: &str, kind: &str, device: &str, folder: &str) -> Result<Self, TorchError> {
        let [library, kind, device, folder] = [library, kind, device, folder].map(c_string);
        let (library, kind, device, folder) = (library?, kind?, device?, folder?);
        let mut out = ptr::null_mut();
        // SAFETY: the texts are terminated by a zero byte and outlive the call; `out` is written
        // before success is returned. What the library does is up to its author, as with any
        // program that the user starts.
        check(unsafe {
            rr_package_load(
                library.as_ptr(),
                kind.as_ptr(),
                device.as_ptr(),
                folder.as_ptr(),
                &mut out,
            )
        })?;
        Ok(Self(boxed(out)))
    }

    /// Returns how the arguments are nested, as JSON.
    pub fn call_spec(&self) -> String {
        // SAFETY: the shim returns `std::string::c_str` of a text in the box, which lives as long
        // as `self` and does not change; it is copied.
        let text = unsafe { CStr::from_ptr(rr_package_call_spec(self.0.as_ptr())) };
        text.to_string_lossy().into_owned()
    }

    /// Runs the package.
    ///
    /// # Safety
    /// Number, types, shapes and devices of the inputs must be those that the package was compiled
    /// for, and they must be contiguous: the compiled code reads them without a check.
    pub unsafe fn run(&self, inputs: &[Tensor]) -> Result<Tensor, TorchError> {
        let inputs: Vec<RawTensor> = inputs.iter().map(raw).collect();
        let mut out = ptr::null_mut();
        // SAFETY: a `tch::Tensor` is an owned `at::Tensor*`, and all of them outlive the call; the
        // caller promises that they are what the code reads. The box belongs to this thread,
        // because this type is not `Sync`. `out` is written before success is returned.
        check(unsafe { rr_package_run(self.0.as_ptr(), inputs.as_ptr(), inputs.len(), &mut out) })?;
        // SAFETY: the shim returns a new `at::Tensor*`, which the new `Tensor` owns from here on.
        Ok(unsafe { Tensor::from_ptr(out.cast()) })
    }
}

impl Drop for PackageHandle {
    fn drop(&mut self) {
        // SAFETY: this handle owns the box and drops it once.
        unsafe { rr_package_free(self.0.as_ptr()) }
    }
}
