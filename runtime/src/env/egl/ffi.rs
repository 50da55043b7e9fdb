//! The unsafe code for EGL: the extensions that list devices, and a context on one of them.
//!
//! Follows EGL 1.4 and 1.5, EGL_EXT_device_base, EGL_EXT_device_drm,
//! EGL_EXT_device_drm_render_node, EGL_EXT_platform_device and EGL_NV_device_cuda. The crates that
//! bind EGL panic at errors without a code or with one of an extension, or bring windows.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

type Int = i32;
type Boolean = u32;
type Enum = u32;
type Attrib = isize;
/// A display, configuration, context, surface or device.
type Handle = *mut c_void;

const TRUE: Boolean = 1;
const NONE: Int = 0x3038;
const EXTENSIONS: Int = 0x3055;
const DRM_DEVICE_FILE: Int = 0x3233;
const DRM_RENDER_NODE_FILE: Int = 0x3377;
const CUDA_DEVICE: Int = 0x323A;
const PLATFORM_DEVICE: Enum = 0x313F;
const OPENGL_API: Enum = 0x30A2;
const OPENGL_BIT: Int = 0x0008;
const PBUFFER_BIT: Int = 0x0001;
static CONFIG: [[Int; 2]; 9] = [
    [0x3033, PBUFFER_BIT], // EGL_SURFACE_TYPE
    [0x3040, OPENGL_BIT],  // EGL_RENDERABLE_TYPE
    [0x3024, 8],           // EGL_RED_SIZE
    [0x3023, 8],           // EGL_GREEN_SIZE
    [0x3022, 8],           // EGL_BLUE_SIZE
    [0x3021, 0],           // EGL_ALPHA_SIZE
    [0x3025, 24],          // EGL_DEPTH_SIZE
    [0x3026, 8],           // EGL_STENCIL_SIZE
    [NONE, NONE],
];
/// One pixel: `EGL_WIDTH` and `EGL_HEIGHT`.
static PIXEL: [Int; 5] = [0x3057, 1, 0x3056, 1, NONE];
static NO_ATTRIBUTES: [Int; 1] = [NONE];

/// Declares the library with its functions.
macro_rules! library {
    ($($field:ident: $name:literal fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The library.
        struct Egl {
            address: Address,
            $($field: unsafe extern "system" fn($($argument),*) -> $result,)*
        }

        impl Egl {
            fn load() -> Result<Self, String> {
                let address = open()?;
                // SAFETY: EGL and its extensions define the functions of these names with these
                // types, and on Linux a function's address has the size of a pointer. The names
                // are NUL-terminated.
                unsafe {
                    Ok(Self {
                        address,
                        $($field: transmute::<
                            *mut c_void,
                            Option<unsafe extern "system" fn($($argument),*) -> $result>,
                        >(address($name.as_ptr())).ok_or_else(|| lacks($name))?,)*
                    })
                }
            }
        }
    };
}

library! {
    error: c"eglGetError" fn() -> Int;
    devices: c"eglQueryDevicesEXT" fn(Int, *mut Handle, *mut Int) -> Boolean;
    string: c"eglQueryDeviceStringEXT" fn(Handle, Int) -> *const c_char;
    attrib: c"eglQueryDeviceAttribEXT" fn(Handle, Int, *mut Attrib) -> Boolean;
    display: c"eglGetPlatformDisplayEXT" fn(Enum, Handle, *const Int) -> Handle;
    initialize: c"eglInitialize" fn(Handle, *mut Int, *mut Int) -> Boolean;
    choose: c"eglChooseConfig" fn(Handle, *const Int, *mut Handle, Int, *mut Int) -> Boolean;
    bind: c"eglBindAPI" fn(Enum) -> Boolean;
    context: c"eglCreateContext" fn(Handle, Handle, Handle, *const Int) -> Handle;
    surface: c"eglCreatePbufferSurface" fn(Handle, Handle, *const Int) -> Handle;
    current: c"eglMakeCurrent" fn(Handle, Handle, Handle, Handle) -> Boolean;
    no_surface: c"eglDestroySurface" fn(Handle, Handle) -> Boolean;
    no_context: c"eglDestroyContext" fn(Handle, Handle) -> Boolean;
}

/// `__eglMustCastToProperFunctionPointerType eglGetProcAddress(const char *)`
type Address = unsafe extern "system" fn(*const c_char) -> *mut c_void;

/// Opens the library, which is never closed. Returns its function that finds all others: also those
/// of EGL itself, as GLVND and Mesa do and EGL 1.5 says.
fn open() -> Result<Address, String> {
    // SAFETY: the names are NUL-terminated, the system's EGL may be loaded by any thread, and EGL
    // defines the function of this name with this type.
    unsafe {
        let library = libc::dlopen(c"libEGL.so.1".as_ptr(), libc::RTLD_NOW);
        if library.is_null() {
            return Err("libEGL.so.1 cannot be loaded".to_owned());
        }
        let address = libc::dlsym(library, c"eglGetProcAddress".as_ptr());
        transmute::<*mut c_void, Option<Address>>(address)
            .ok_or_else(|| lacks(c"eglGetProcAddress"))
    }
}

fn lacks(function: &CStr) -> String {
    let name = function.to_string_lossy();
    format!("libEGL.so.1 is too old to list devices: it has no {name}")
}

/// Loads the library at the first call.
fn egl() -> Result<&'static Egl, &'static str> {
    static EGL: OnceLock<Result<Egl, String>> = OnceLock::new();
    EGL.get_or_init(Egl::load).as_ref().map_err(String::as_str)
}

impl Egl {
    /// Says which function has failed, with the code that the library gives.
    fn failed(&self, function: &str) -> String {
        // SAFETY: the function has no preconditions.
        format!("{function} failed with code {:#06x}", unsafe {
            (self.error)()
        })
    }

    fn done(&self, function: &str, result: Boolean) -> Result<(), String> {
        (result == TRUE)
            .then_some(())
            .ok_or_else(|| self.failed(function))
    }

    fn made(&self, function: &str, handle: Handle) -> Result<Handle, String> {
        (!handle.is_null())
            .then_some(handle)
            .ok_or_else(|| self.failed(function))
    }
}

/// EGL's handle of a device, which is valid as long as the process lives.
pub struct DeviceHandle {
    egl: &'static Egl,
    raw: Handle,
}

// SAFETY: EGL's functions may be called in any thread, and devices are constants of the library.
unsafe impl Send for DeviceHandle {}
// SAFETY: as above.
unsafe impl Sync for DeviceHandle {}

/// Lists the devices in EGL's order.
pub(super) fn query_devices() -> Result<Vec<DeviceHandle>, String> {
    let egl = egl()?;
    let mut count: Int = 0;
    // SAFETY: with no room for handles, EGL writes only their number, which outlives the call.
    let counted = unsafe { (egl.devices)(0, null_mut(), &raw mut count) };
    egl.done("eglQueryDevicesEXT", counted)?;
    let mut raw = vec![null_mut(); usize::try_from(count).unwrap_or(0)];
    // SAFETY: the vector has room for `count` handles, and both outlive the call.
    let listed = unsafe { (egl.devices)(count, raw.as_mut_ptr(), &raw mut count) };
    egl.done("eglQueryDevicesEXT", listed)?;
    raw.truncate(usize::try_from(count).unwrap_or(0));
    let devices = raw.into_iter().map(|raw| DeviceHandle { egl, raw });
    Ok(devices.collect())
}

impl DeviceHandle {
    /// Whether the device has an extension.
    pub(super) fn has(&self, extension: &str) -> bool {
        let all = self.string(EXTENSIONS);
        all.is_some_and(|all| all.split(' ').any(|one| one == extension))
    }

    /// The DRM file of the card, else that of its renderer.
    pub(super) fn drm_file(&self) -> Option<String> {
        let named = |extension, name| self.has(extension).then(|| self.string(name)).flatten();
        named("EGL_EXT_device_drm", DRM_DEVICE_FILE)
            .or_else(|| named("EGL_EXT_device_drm_render_node", DRM_RENDER_NODE_FILE))
    }

    /// The CUDA index in this process; `None` if the driver does not report it.
    pub(super) fn cuda(&self) -> Option<usize> {
        if !self.has("EGL_NV_device_cuda") {
            return None;
        }
        let mut number: Attrib = -1;
        // SAFETY: EGL listed this device, `number` outlives the call, and the device has the
        // extension that defines the attribute.
        let answered = unsafe { (self.egl.attrib)(self.raw, CUDA_DEVICE, &raw mut number) };
        (answered == TRUE)
            .then(|| usize::try_from(number).ok())
            .flatten()
    }

    fn string(&self, name: Int) -> Option<String> {
        // SAFETY: EGL listed this device; a name that it does not know gives null.
        text(unsafe { (self.egl.string)(self.raw, name) })
    }

    /// Opens a context on this thread, by default of the compatibility profile, which MuJoCo's
    /// renderer needs. Its surface has one pixel, because pictures are drawn off screen.
    ///
    /// # Errors
    /// Returns the function that failed, with EGL's code.
    pub fn open(&self) -> Result<CurrentContext, String> {
        let egl = self.egl;
        // SAFETY: EGL listed this device, which is one of the platform; no attribute is passed. The
        // lists outlive the calls and end with `NONE`. What each call gets is what the one before
        // has made, and the context is destroyed by `CurrentContext` alone.
        unsafe {
            let display = (egl.display)(PLATFORM_DEVICE, self.raw, null());
            let display = egl.made("eglGetPlatformDisplayEXT", display)?;
            let begun = (egl.initialize)(display, null_mut(), null_mut());
            egl.done("eglInitialize", begun)?;
            let (mut config, mut count) = (null_mut(), 0);
            let wanted = CONFIG.as_flattened().as_ptr();
            let chosen = (egl.choose)(display, wanted, &raw mut config, 1, &raw mut count);
            egl.done("eglChooseConfig", chosen)?;
            if count < 1 {
                return Err("it has no configuration for pictures".to_owned());
            }
            egl.done("eglBindAPI", (egl.bind)(OPENGL_API))?;
            let context = (egl.context)(display, config, null_mut(), NO_ATTRIBUTES.as_ptr());
            let mut opened = CurrentContext {
                egl,
                display,
                context: egl.made("eglCreateContext", context)?,
                surface: null_mut(),
                _of_this_thread: PhantomData,
            };
            let surface = (egl.surface)(display, config, PIXEL.as_ptr());
            opened.surface = egl.made("eglCreatePbufferSurface", surface)?;
            let current = (egl.current)(display, surface, surface, context);
            egl.done("eglMakeCurrent", current)?;
            Ok(opened)
        }
    }
}

/// An OpenGL context that is current on this thread until it is dropped.
pub struct CurrentContext {
    egl: &'static Egl,
    display: Handle,
    context: Handle,
    /// Null until it is made.
    surface: Handle,
    /// It stays on the thread that opened it.
    _of_this_thread: PhantomData<*const ()>,
}

impl CurrentContext {
    /// OpenGL's name of the renderer, as `llvmpipe (LLVM 15.0.6, 256 bits)`.
    pub fn renderer(&self) -> String {
        /// `const GLubyte *glGetString(GLenum)`
        type GetString = unsafe extern "system" fn(Enum) -> *const c_char;
        /// gl.h: `GL_RENDERER`.
        const RENDERER: Enum = 0x1F01;

        // SAFETY: the name is NUL-terminated.
        let get = unsafe { (self.egl.address)(c"glGetString".as_ptr()) };
        if get.is_null() {
            return "unknown".to_owned();
        }
        // SAFETY: OpenGL defines the function of this name with this type, and a context is current
        // on this thread.
        let name = text(unsafe { transmute::<*mut c_void, GetString>(get)(RENDERER) });
        name.unwrap_or_else(|| "unknown".to_owned())
    }
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        // A context that is destroyed while it is current lives until its thread ends, and Mesa
        // keeps 20 MB of it even then. Each call can only fail if its handle no longer exists.
        // SAFETY: `open` has made the handles on this thread, and nothing else destroys them.
        unsafe {
            (self.egl.current)(self.display, null_mut(), null_mut(), null_mut());
            if !self.surface.is_null() {
                (self.egl.no_surface)(self.display, self.surface);
            }
            (self.egl.no_context)(self.display, self.context);
        }
    }
}

/// Copies a string of EGL or OpenGL.
fn text(string: *const c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: it is not null, so it is a string of the library with a NUL at its end.
    let text = unsafe { CStr::from_ptr(string) };
    Some(text.to_string_lossy().into_owned())
}
