//! The unsafe code for EGL: queries the one attribute that glutin does not expose.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

use glutin::api::egl::device::Device;

/// EGL_NV_device_cuda: `EGL_CUDA_DEVICE_NV`.
const CUDA_DEVICE: c_int = 0x323A;

/// Type of `eglGetProcAddress`.
type GetProcAddress = unsafe extern "system" fn(*const c_char) -> *mut c_void;
/// Type of `eglQueryDeviceAttribEXT`: `EGLBoolean (EGLDeviceEXT, EGLint, EGLAttrib*)`.
type QueryDeviceAttrib = unsafe extern "system" fn(*mut c_void, c_int, *mut isize) -> u32;

/// Returns the CUDA index of a device in this process; `None` if the driver does not report it.
pub(super) fn cuda_device(device: &Device) -> Option<usize> {
    if !device.extensions().contains("EGL_NV_device_cuda") {
        return None;
    }
    let query = (*query_device_attrib())?;
    let mut number: isize = -1;
    // SAFETY: the handle comes from glutin, which got it from EGL, where devices live as long as
    // the library; `number` outlives the call; the device has the extension that defines the
    // attribute.
    let answered = unsafe { query(device.raw_device().cast_mut(), CUDA_DEVICE, &raw mut number) };
    if answered == 0 {
        None
    } else {
        usize::try_from(number).ok()
    }
}

/// Returns the function, if this machine's EGL has it.
fn query_device_attrib() -> &'static Option<QueryDeviceAttrib> {
    static FUNCTION: OnceLock<Option<QueryDeviceAttrib>> = OnceLock::new();
    FUNCTION.get_or_init(|| {
        // SAFETY: the name is NUL-terminated. glutin loaded this library before it could create a
        // `Device`, so nothing is loaded here; it is never closed.
        let library = unsafe { libc::dlopen(c"libEGL.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library is open, and the name is NUL-terminated.
        let get = unsafe { libc::dlsym(library, c"eglGetProcAddress".as_ptr()) };
        if get.is_null() {
            return None;
        }
        // SAFETY: EGL 1.5 defines the function of this name with this type, and on Linux a
        // function's address has the size of a pointer.
        let get = unsafe { transmute::<*mut c_void, GetProcAddress>(get) };
        // SAFETY: the name is NUL-terminated.
        let query = unsafe { get(c"eglQueryDeviceAttribEXT".as_ptr()) };
        if query.is_null() {
            return None;
        }
        // SAFETY: EGL_EXT_device_query defines the function of this name with this type.
        Some(unsafe { transmute::<*mut c_void, QueryDeviceAttrib>(query) })
    })
}
