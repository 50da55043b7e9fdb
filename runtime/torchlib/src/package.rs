//! Compiled packages of torch.export and AOTInductor.
//!
//! The library of a package needs `libtorch.so`, a library without code that itself needs all of
//! CUDA, and that the dynamic linker would look for in `LD_LIBRARY_PATH` alone. The code is in
//! `libtorch_cpu.so`, which is loaded already, and on a GPU in `libtorch_cuda.so`, which
//! [`cuda::load`](crate::cuda::load) has loaded. So an empty library that is called `libtorch.so`
//! is loaded from memory first, and the linker asks for no other.

use std::ffi::CStr;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use libc::{c_char, c_int};
use tch::{Device, Kind, Tensor};

use crate::ffi::{Library, RawTensor, boxed, c_string, check, made, raw};
use crate::torch_error::TorchError;

/// An empty shared library whose name is `libtorch.so`.
static STAND_IN: &[u8] = include_bytes!(env!("RRUN_TORCH_STAND_IN"));

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

/// What a package was compiled for: types and shapes of its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The inputs, in order.
    pub inputs: Vec<TensorLayout>,
    /// The smallest number of rows of a batch.
    pub min_batch: i64,
    /// The largest number of rows of a batch.
    pub max_batch: i64,
}

/// Type and shape of a tensor, whose first dimension is the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    /// The type of its numbers.
    pub kind: Kind,
    /// Its shape without the batch.
    pub row: Vec<i64>,
}

/// A loaded package, which belongs to one thread.
#[derive(Debug)]
pub struct CompiledPackage {
    package: NonNull<RawPackage>,
    signature: Signature,
    device: Device,
}

impl CompiledPackage {
    /// Loads the compiled library of a package to `device`. Its other files are in `folder`.
    ///
    /// The library is a program of the package's author. `signature` must be that with which it was
    /// compiled; the number of inputs is compared with what the library says.
    ///
    /// # Errors
    /// Returns an error if the library cannot be loaded, or has another number of inputs.
    pub fn load(
        library: &Path,
        folder: &Path,
        device: Device,
        signature: Signature,
    ) -> Result<Self, TorchError> {
        stand_in()?;
        let (kind, name) = match device {
            Device::Cuda(index) => ("cuda", format!("cuda:{index}")),
            _ => ("cpu", "cpu".to_owned()),
        };
        let [library, folder] = [library, folder].map(Path::to_string_lossy);
        let [library, kind, name, folder] = [&*library, kind, &*name, &*folder].map(c_string);
        let (library, kind, name, folder) = (library?, kind?, name?, folder?);
        let mut package = ptr::null_mut();
        // SAFETY: the texts are terminated by a zero byte and outlive the call; `package` is
        // written before success is returned. What the library does is up to its author, as with
        // any program that the user starts.
        check(unsafe {
            rr_package_load(
                library.as_ptr(),
                kind.as_ptr(),
                name.as_ptr(),
                folder.as_ptr(),
                &mut package,
            )
        })?;
        let loaded = Self {
            package: boxed(package),
            signature,
            device,
        };
        let wanted = loaded.signature.inputs.len();
        match arguments(&loaded.call_spec()) {
            Some(found) if found != wanted => Err(TorchError::new(format!(
                "its `forward` has {found} inputs, and its description {wanted}"
            ))),
            _ => Ok(loaded),
        }
    }

    /// Returns how the arguments are nested, as JSON.
    fn call_spec(&self) -> String {
        // SAFETY: the shim returns `std::string::c_str` of a text in the box, which lives as long
        // as `self` and does not change; it is copied.
        let text = unsafe { CStr::from_ptr(rr_package_call_spec(self.package.as_ptr())) };
        text.to_string_lossy().into_owned()
    }

    /// Returns the device on which it runs.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Runs the package on inputs that are on its device. On a GPU, the work is launched on this
    /// thread's stream.
    ///
    /// # Errors
    /// Returns an error for inputs that are not those of the signature, and libtorch's error.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Tensor, TorchError> {
        self.check(inputs).map_err(TorchError::new)?;
        let inputs: Vec<Tensor> = inputs.iter().map(Tensor::contiguous).collect();
        let raws: Vec<RawTensor> = inputs.iter().map(raw).collect();
        let package = self.package.as_ptr();
        // SAFETY: the compiled code reads its inputs without a check. They are those of the
        // signature, which is that of the package, contiguous and on its device: the lines above
        // check it. A `tch::Tensor` is an owned `at::Tensor*`, and all of them outlive the call.
        // The box belongs to this thread, because this type is not `Sync`.
        let run = |out: &mut RawTensor| unsafe {
            rr_package_run(package, raws.as_ptr(), raws.len(), out)
        };
        // SAFETY: the shim writes a new `at::Tensor*` for this caller alone.
        unsafe { made(run, check) }
    }

    /// Checks that inputs are those of the signature.
    fn check(&self, inputs: &[Tensor]) -> Result<(), String> {
        let Signature {
            inputs: wanted,
            min_batch,
            max_batch,
        } = &self.signature;
        let (found, expected) = (inputs.len(), wanted.len());
        if found != expected {
            return Err(format!("{found} inputs, expected {expected}"));
        }
        let batch = inputs.first().map_or(0, |first| first.size()[0]);
        if !(*min_batch..=*max_batch).contains(&batch) {
            return Err(format!(
                "a batch of {batch} rows, expected {min_batch} to {max_batch}"
            ));
        }
        for (index, (found, wanted)) in inputs.iter().zip(wanted).enumerate() {
            let shape = [&[batch], wanted.row.as_slice()].concat();
            let (size, kind) = (found.size(), found.kind());
            if size != shape || kind != wanted.kind || found.device() != self.device {
                return Err(format!(
                    "input {index} is {kind:?} {size:?} on {:?}, expected {:?} {shape:?} on {:?}",
                    found.device(),
                    wanted.kind,
                    self.device
                ));
            }
        }
        Ok(())
    }
}

impl Drop for CompiledPackage {
    fn drop(&mut self) {
        // SAFETY: this value owns the box and drops it once.
        unsafe { rr_package_free(self.package.as_ptr()) }
    }
}

/// Loads the library that stands for `libtorch.so`, once.
fn stand_in() -> Result<(), TorchError> {
    static LOADED: OnceLock<Result<(), TorchError>> = OnceLock::new();
    LOADED
        .get_or_init(|| Library::open_image(STAND_IN).map(drop))
        .clone()
}

/// Returns the number of tensors among the arguments of a call specification; `None` if it has
/// another form.
///
/// torch/utils/_pytree.py, torch 2.11: `[1, {"type": "builtins.tuple", "children_spec": […]}]`; a
/// leaf has the type null.
fn arguments(call_spec: &str) -> Option<usize> {
    // A leaf is the only node without a type.
    let spec: String = call_spec.split_whitespace().collect();
    spec.starts_with("[1,")
        .then(|| spec.matches("\"type\":null").count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_counted_in_a_call_specification() {
        let leaf = r#"{"type": null, "context": null, "children_spec": []}"#;
        let spec = format!(
            r#"[1, {{"type": "builtins.tuple", "context": "null", "children_spec": [
                {{"type": "builtins.tuple", "context": "null", "children_spec": [{leaf}, {leaf}]}},
                {{"type": "builtins.dict", "context": "[]", "children_spec": []}}]}}]"#
        );
        assert_eq!(arguments(&spec), Some(2));
        assert_eq!(arguments(""), None);
    }

    #[test]
    fn what_stands_for_libtorch_is_loaded_from_memory() {
        assert_eq!(stand_in(), Ok(()));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("libtorch_cuda.so"), "no CUDA is loaded");
    }

    #[test]
    fn a_file_that_is_no_library_is_an_error() {
        let folder = std::env::temp_dir();
        let signature = Signature {
            inputs: Vec::new(),
            min_batch: 1,
            max_batch: 1,
        };
        let library = folder.join("rrun-no-such-library.so");
        let loaded = CompiledPackage::load(&library, &folder, Device::Cpu, signature);
        let text = loaded.unwrap_err().to_string();
        assert!(text.contains("rrun-no-such-library.so"), "{text}");
    }
}
