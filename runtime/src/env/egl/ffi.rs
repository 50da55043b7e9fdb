//! The unsafe code for EGL: the extensions that list devices, and a context on one of them.
//!
//! Follows EGL 1.5, EGL_EXT_device_enumeration, EGL_EXT_device_query, EGL_EXT_device_drm,
//! EGL_EXT_device_drm_render_node, EGL_EXT_platform_device and EGL_NV_device_cuda.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::OnceLock;

use khronos_egl::{
    ALPHA_SIZE, ATTRIB_NONE, Attrib, BLUE_SIZE, Boolean, CONTEXT_MAJOR_VERSION,
    CONTEXT_MINOR_VERSION, CONTEXT_OPENGL_COMPATIBILITY_PROFILE_BIT, CONTEXT_OPENGL_PROFILE_MASK,
    Context, DEPTH_SIZE, Display, DynamicInstance, EGL1_5, Enum, Error, GREEN_SIZE, HEIGHT, Int,
    NONE, OPENGL_API, OPENGL_BIT, PBUFFER_BIT, RED_SIZE, RENDERABLE_TYPE, STENCIL_SIZE,
    SURFACE_TYPE, Surface, TRUE, WIDTH,
};

const EXTENSIONS: Int = 0x3055;
const DRM_DEVICE_FILE: Int = 0x3233;
const DRM_RENDER_NODE_FILE: Int = 0x3377;
const CUDA_DEVICE: Int = 0x323A;
const PLATFORM_DEVICE: Enum = 0x313F;

type QueryDevices = unsafe extern "system" fn(Int, *mut *mut c_void, *mut Int) -> Boolean;
type QueryDeviceString = unsafe extern "system" fn(*mut c_void, Int) -> *const c_char;
type QueryDeviceAttrib = unsafe extern "system" fn(*mut c_void, Int, *mut Attrib) -> Boolean;
/// `const GLubyte *glGetString(GLenum)`
type GetString = unsafe extern "system" fn(c_int) -> *const c_char;

/// The library, with the functions of its extensions.
struct Egl {
    api: DynamicInstance<EGL1_5>,
    devices: QueryDevices,
    string: QueryDeviceString,
    attrib: QueryDeviceAttrib,
}

/// Loads the library at the first call.
fn egl() -> Result<&'static Egl, &'static str> {
    static EGL: OnceLock<Result<Egl, String>> = OnceLock::new();
    EGL.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Egl, String> {
    // SAFETY: this name is the system's EGL, whose functions have the types of its specification.
    let api = unsafe { DynamicInstance::<EGL1_5>::load_required_from_filename("libEGL.so.1") }
        .map_err(|error| error.to_string())?;
    let function = |name| {
        let found = api.get_proc_address(name);
        found.ok_or_else(|| format!("libEGL.so.1 has no {name}: it is too old to list devices"))
    };
    let (devices, string, attrib) = (
        function("eglQueryDevicesEXT")?,
        function("eglQueryDeviceStringEXT")?,
        function("eglQueryDeviceAttribEXT")?,
    );
    // SAFETY: the extensions above define the functions of these names with these types.
    unsafe {
        Ok(Egl {
            devices: transmute::<extern "system" fn(), QueryDevices>(devices),
            string: transmute::<extern "system" fn(), QueryDeviceString>(string),
            attrib: transmute::<extern "system" fn(), QueryDeviceAttrib>(attrib),
            api,
        })
    }
}

/// EGL's handle of a device, which is valid as long as the process lives.
pub struct DeviceHandle {
    egl: &'static Egl,
    raw: *mut c_void,
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
    if counted != TRUE {
        return Err("EGL does not list its devices".to_owned());
    }
    let mut raw = vec![null_mut(); usize::try_from(count).unwrap_or(0)];
    // SAFETY: the vector has room for `count` handles, and both outlive the call.
    let listed = unsafe { (egl.devices)(count, raw.as_mut_ptr(), &raw mut count) };
    raw.truncate(if listed == TRUE {
        usize::try_from(count).unwrap_or(0)
    } else {
        0
    });
    Ok(raw
        .into_iter()
        .map(|raw| DeviceHandle { egl, raw })
        .collect())
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
        let mut number: Attrib = 0;
        // SAFETY: EGL listed this device, `number` outlives the call, and the device has the
        // extension that defines the attribute.
        let answered = unsafe { (self.egl.attrib)(self.raw, CUDA_DEVICE, &raw mut number) };
        (answered == TRUE).then_some(number)
    }

    fn string(&self, name: Int) -> Option<String> {
        // SAFETY: EGL listed this device; a name that it does not know gives null.
        text(unsafe { (self.egl.string)(self.raw, name) })
    }

    /// Opens a compatibility context, which MuJoCo's renderer needs, on this thread. Its surface
    /// has one pixel, because pictures are drawn off screen.
    ///
    /// # Errors
    /// Returns EGL's error.
    pub fn open(&self) -> Result<CurrentContext, Error> {
        let api = &self.egl.api;
        // SAFETY: the platform is that of devices, and EGL listed this one.
        let display =
            unsafe { api.get_platform_display(PLATFORM_DEVICE, self.raw, &[ATTRIB_NONE])? };
        api.initialize(display)?;
        let wanted = [
            [SURFACE_TYPE, PBUFFER_BIT],
            [RENDERABLE_TYPE, OPENGL_BIT],
            [RED_SIZE, 8],
            [GREEN_SIZE, 8],
            [BLUE_SIZE, 8],
            [ALPHA_SIZE, 0],
            [DEPTH_SIZE, 24],
            [STENCIL_SIZE, 8],
            [NONE, NONE],
        ];
        let config = api.choose_first_config(display, wanted.as_flattened())?;
        let config = config.ok_or(Error::BadConfig)?;
        api.bind_api(OPENGL_API)?;
        let version = [
            [CONTEXT_MAJOR_VERSION, 2],
            [CONTEXT_MINOR_VERSION, 0],
            [
                CONTEXT_OPENGL_PROFILE_MASK,
                CONTEXT_OPENGL_COMPATIBILITY_PROFILE_BIT,
            ],
            [NONE, NONE],
        ];
        let mut opened = CurrentContext {
            egl: self.egl,
            display,
            context: api.create_context(display, config, None, version.as_flattened())?,
            surface: None,
            _of_this_thread: PhantomData,
        };
        let surface = api.create_pbuffer_surface(display, config, &[WIDTH, 1, HEIGHT, 1, NONE])?;
        opened.surface = Some(surface);
        api.make_current(display, Some(surface), Some(surface), Some(opened.context))?;
        Ok(opened)
    }
}

/// An OpenGL context that is current on this thread until it is dropped.
pub struct CurrentContext {
    egl: &'static Egl,
    display: Display,
    context: Context,
    surface: Option<Surface>,
    /// It stays on the thread that opened it.
    _of_this_thread: PhantomData<*const ()>,
}

impl CurrentContext {
    /// OpenGL's name of the renderer, as `llvmpipe (LLVM 15.0.6, 256 bits)`.
    pub fn renderer(&self) -> String {
        /// gl.h: `GL_RENDERER`.
        const RENDERER: c_int = 0x1F01;

        let name = self
            .egl
            .api
            .get_proc_address("glGetString")
            .and_then(|get| {
                // SAFETY: OpenGL defines the function of this name with this type, and a context is
                // current on this thread.
                text(unsafe { transmute::<extern "system" fn(), GetString>(get)(RENDERER) })
            });
        name.unwrap_or_else(|| "unknown".to_owned())
    }
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        // A context that is destroyed while it is current lives until its thread ends, and Mesa
        // keeps 20 MB of it even then. Each can only fail if it no longer exists.
        let api = &self.egl.api;
        api.make_current(self.display, None, None, None).ok();
        if let Some(surface) = self.surface {
            api.destroy_surface(self.display, surface).ok();
        }
        api.destroy_context(self.display, self.context).ok();
    }
}

/// Copies a string of EGL or OpenGL.
fn text(string: *const c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: it is not null, so it is a string of the library with a NUL at its end.
    Some(
        unsafe { CStr::from_ptr(string) }
            .to_string_lossy()
            .into_owned(),
    )
}
