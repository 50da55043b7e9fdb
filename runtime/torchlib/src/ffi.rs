//! Calls of the shims: a call returns a status, and the error message of a failure is kept in a
//! thread-local variable. Handles own their C++ box. Also libraries that are loaded at run time:
//! the driver, libtorch's CUDA half and our CUDA shim.

use crate::torch_error::TorchError;
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::ptr::{self, NonNull};
use tch::Tensor;

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

/// Declares a table of C functions, each found in a library by its name here.
macro_rules! functions {
    ($(#[$doc:meta])* $visible:vis $table:ident { $($name:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the names are those of the library")]
        $visible struct $table {
            $($visible $name: $type,)*
        }

        impl $table {
            /// Looks up every function.
            fn bind(library: crate::ffi::Library) -> Result<Self, TorchError> {
                Ok(Self {
                    $($name: {
                        let symbol = library.symbol(concat!(stringify!($name), "\0"))?;
                        // SAFETY: the function of this name has this type in the header or source
                        // that the table names; function pointers and data pointers have the same
                        // size on Linux.
                        unsafe { std::mem::transmute::<*mut libc::c_void, $type>(symbol) }
                    },)*
                })
            }
        }
    };
}
pub(crate) use functions;

/// A library that stays loaded until the process ends.
#[derive(Clone, Copy)]
pub struct Library(NonNull<c_void>);

// SAFETY: a handle from dlopen is valid on every thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads `path`; with `global`, libraries that are loaded later can use its symbols.
    pub fn open(path: &str, global: bool) -> Result<Self, TorchError> {
        let path = c_string(path)?;
        let scope = if global {
            libc::RTLD_GLOBAL
        } else {
            libc::RTLD_LOCAL
        };
        // SAFETY: the path is terminated by a zero byte. The libraries named by `cuda.rs` (the
        // driver, libtorch's own, our shim) run only their usual initializers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | scope) };
        NonNull::new(handle).map(Self).ok_or_else(|| {
            // SAFETY: after a failed dlopen, dlerror returns a string of this thread that lives
            // until the next call to dlerror.
            let reason = unsafe { CStr::from_ptr(libc::dlerror()) };
            TorchError::new(reason.to_string_lossy())
        })
    }

    /// Loads a library from memory, given its bytes `image`, because there may be no writable
    /// folder. Its file stays open until the process ends: the dynamic linker knows libraries by
    /// their paths, and would take another one with the same descriptor for this one.
    pub fn open_image(image: &[u8]) -> Result<Self, TorchError> {
        let cannot = |err| TorchError::new(format!("cannot keep a library in memory: {err}"));
        let file = memory_file(image).map_err(cannot)?;
        Self::open(&format!("/proc/self/fd/{}", file.into_raw_fd()), false)
    }

    /// Returns the address of a function, whose name ends with a zero byte.
    pub(crate) fn symbol(self, name: &str) -> Result<*mut c_void, TorchError> {
        let missing = || TorchError::new(format!("{} is missing", name.trim_end_matches('\0')));
        let text = CStr::from_bytes_with_nul(name.as_bytes()).map_err(|_| missing())?;
        // SAFETY: the library is never closed, and the name is terminated by a zero byte.
        let symbol = unsafe { libc::dlsym(self.0.as_ptr(), text.as_ptr()) };
        if symbol.is_null() {
            return Err(missing());
        }
        Ok(symbol)
    }
}

fn memory_file(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name is terminated by a zero byte.
    let fd = unsafe { libc::memfd_create(c"librrun.so".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor has just been opened, and nothing else owns it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    Ok(file)
}
