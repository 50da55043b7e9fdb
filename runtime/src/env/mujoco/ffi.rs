//! The unsafe code of the simulator: a headless OpenGL context, and the handler of MuJoCo's fatal
//! errors.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::mem::transmute;
use std::num::NonZeroU32;
use std::sync::Once;

use glutin::api::egl::context::PossiblyCurrentContext;
use glutin::api::egl::device::Device;
use glutin::api::egl::display::Display;
use glutin::api::egl::surface::Surface;
use glutin::config::{ConfigSurfaceTypes, ConfigTemplateBuilder};
use glutin::context::{ContextApi, ContextAttributesBuilder, GlProfile, Version};
use glutin::prelude::{GlDisplay, NotCurrentGlContext, PossiblyCurrentGlContext};
use glutin::surface::{PbufferSurface, SurfaceAttributesBuilder};
use mujoco_rs::logging::set_log_handler;
use mujoco_rs::prelude::{MjLogMessage, MjModel, MjrContext, MjtLogLevel};

use crate::console::write_error_file;
use crate::env::EnvError;
use crate::env::egl::{EglDevice, EglRequest, candidates, devices, note};

/// Makes Mesa render in the calling thread instead of its own threads.
///
/// The copies of an environment are already spread over threads, so this costs nothing. With the
/// rendering threads of Mesa 22.3, the heap was corrupted in two of some fifty runs on a busy
/// machine. Call this first in `main`: it does nothing once there is a second thread. It does not
/// change an `LP_NUM_THREADS` set by the user.
pub fn draw_without_threads() {
    const THREADS: &str = "LP_NUM_THREADS";
    let alone = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    if alone && std::env::var_os(THREADS).is_none() {
        #[expect(
            clippy::disallowed_methods,
            reason = "Mesa has no other way to be told"
        )]
        // SAFETY: this is the only thread, so no other thread reads the environment meanwhile.
        unsafe {
            std::env::set_var(THREADS, "0");
        }
    }
}

/// MuJoCo's renderer with its OpenGL context, which is current on the thread that created it.
pub(super) struct Gl {
    // Dropped in this order: MuJoCo frees its textures while the context still exists.
    pub(super) context: MjrContext,
    _current: Current,
    /// The device that renders.
    pub(super) device: EglDevice,
    /// OpenGL's name of the renderer, as `llvmpipe (LLVM 15.0.6, 256 bits)`.
    pub(super) renderer: String,
    /// Message for the user about the device that renders.
    pub(super) note: Option<String>,
}

/// An OpenGL context that is current on this thread until it is dropped, with its surface.
struct Current {
    gl: PossiblyCurrentContext,
    _surface: Surface<PbufferSurface>,
}

impl Drop for Current {
    fn drop(&mut self) {
        // A context that is destroyed while it is current lives until its thread ends, and Mesa
        // keeps 20 MB of it even then. This can only fail if the context no longer exists.
        self.gl.make_not_current_in_place().ok();
    }
}

impl Gl {
    /// Opens an off-screen context on the most suitable EGL device that opens.
    pub(super) fn new(model: &MjModel, wanted: &EglRequest) -> Result<Self, EnvError> {
        let devices = devices().map_err(absent)?;
        let mut reasons = Vec::new();
        for index in candidates(&devices.known, wanted)? {
            let device = &devices.known[index];
            let (current, renderer) = match on_device(&devices.handles[index]) {
                Ok(opened) => opened,
                Err(error) => {
                    reasons.push(format!("EGL device {index} ({device}): {error}"));
                    continue;
                }
            };
            // SAFETY: `on_device` has just made a context current on this thread. It stays current
            // until drop: this file makes no other context current on a thread that has one (a
            // worker has one renderer), and `Gl` is not `Send`, because neither of its two contexts
            // is.
            let mut context = unsafe { MjrContext::new(model) };
            context.offscreen();
            return Ok(Self {
                context,
                _current: current,
                device: device.clone(),
                renderer,
                note: note(&devices.known, wanted, index, &reasons),
            });
        }
        if reasons.is_empty() {
            return Err(absent("there is no EGL device"));
        }
        Err(absent(&reasons.join("; ")))
    }
}

/// Returns the error for a machine that renders nothing, by what EGL says, or by each device and
/// why it does not open.
fn absent(reason: &str) -> EnvError {
    EnvError::Setup(format!(
        "cannot render without a display: {reason}; install the packages libegl1 libegl-mesa0 \
         libgl1-mesa-dri (or a GPU driver with EGL), or switch pictures off with --no-video"
    ))
}

/// Opens a compatibility context, which MuJoCo's renderer needs, and returns the name of its
/// renderer, too. The surface has one pixel, because images are rendered off screen.
fn on_device(device: &Device) -> Result<(Current, String), glutin::error::Error> {
    // SAFETY: the device comes from `query_devices`; there is no native display that it has to
    // outlive.
    let display = unsafe { Display::with_device(device, None)? };
    let template = ConfigTemplateBuilder::new()
        .with_surface_type(ConfigSurfaceTypes::PBUFFER)
        .with_alpha_size(0);
    // SAFETY: the template names no native window, so no handle can be invalid.
    let config = unsafe { display.find_configs(template.build())?.next() };
    let config = config.ok_or(glutin::error::ErrorKind::BadConfig)?;
    let attributes = ContextAttributesBuilder::new()
        .with_profile(GlProfile::Compatibility)
        .with_context_api(ContextApi::OpenGl(Some(Version::new(2, 0))))
        .build(None);
    // SAFETY: the configuration belongs to this display; no window handle is passed.
    let context = unsafe { display.create_context(&config, &attributes)? };
    let pixel =
        SurfaceAttributesBuilder::<PbufferSurface>::new().build(NonZeroU32::MIN, NonZeroU32::MIN);
    // SAFETY: the configuration belongs to this display and allows pbuffers.
    let surface = unsafe { display.create_pbuffer_surface(&config, &pixel)? };
    let gl = context.make_current(&surface)?;
    let name = renderer_name(&display);
    let current = Current {
        gl,
        _surface: surface,
    };
    Ok((current, name))
}

/// Type of `glGetString`: `const GLubyte *(GLenum)`.
type GetString = unsafe extern "system" fn(u32) -> *const c_char;

/// Returns the name of the renderer of the context that is current on this thread.
fn renderer_name(display: &Display) -> String {
    /// gl.h: `GL_RENDERER`.
    const RENDERER: u32 = 0x1F01;

    let get: *const c_void = display.get_proc_address(c"glGetString");
    if get.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: OpenGL defines the function of this name with this type, and on Linux a function's
    // address has the size of a pointer.
    let get = unsafe { transmute::<*const c_void, GetString>(get) };
    // SAFETY: the caller has just made a context of this display current on this thread.
    let name = unsafe { get(RENDERER) };
    if name.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: it is not null, so it is a static string with a NUL at its end, which lives as long
    // as the context and is copied here.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// What a thread is simulating, for the message of a fatal error.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentWork {
    pub(super) task: &'static str,
    pub(super) env: usize,
    pub(super) seed: Option<u64>,
    pub(super) step: u32,
}

thread_local! {
    /// What this thread is about to simulate.
    pub(super) static DOING: Cell<Option<CurrentWork>> = const { Cell::new(None) };
}

/// Installs the handler that reports MuJoCo's fatal errors before the process ends. Every use of
/// MuJoCo in this crate comes after a call of this function.
pub(super) fn install_log_handler() {
    static ONCE: Once = Once::new();
    // SAFETY: `make` calls this before it loads a model, and nothing else in the process uses
    // MuJoCo; a second caller waits here until the first is done.
    ONCE.call_once(|| unsafe { set_log_handler(on_message) });
}

/// Handles MuJoCo's messages; an error ends the process. Returning would run C code on broken
/// state, and unwinding would cross C frames.
fn on_message(message: &MjLogMessage) {
    if message.level() != MjtLogLevel::mjLOG_ERROR {
        tracing::debug!(target: "mujoco", "{}", message.subject());
        return;
    }
    let text = describe(message.subject(), DOING.get());
    eprintln!("rrun-rank: {text}");
    write_error_file(&text);
    // SAFETY: `_exit` has no preconditions. Destructors do not run, so none of them can wait for
    // this thread.
    unsafe { libc::_exit(1) }
}

fn describe(reason: &str, doing: Option<CurrentWork>) -> String {
    let Some(CurrentWork {
        task,
        env,
        seed,
        step,
    }) = doing
    else {
        return format!("MuJoCo stopped: {reason}");
    };
    let seed = seed.map_or(String::new(), |seed| format!(" of seed {seed}"));
    format!("MuJoCo stopped in task `{task}`, environment {env}, step {step}{seed}: {reason}")
}
