//! The unsafe code of the simulator: MuJoCo's renderer on a current OpenGL context, and the handler
//! of MuJoCo's fatal errors.

use std::cell::Cell;
use std::sync::Once;

use mujoco_rs::logging::set_log_handler;
use mujoco_rs::prelude::{MjLogMessage, MjModel, MjrContext, MjtLogLevel};

use crate::console::write_error_file;
use crate::env::EnvError;
use crate::env::egl::{CurrentContext, EglDevice, EglRequest, candidates, devices, note};

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
    _current: CurrentContext,
    /// The device that renders.
    pub(super) device: EglDevice,
    /// OpenGL's name of the renderer.
    pub(super) renderer: String,
    /// Message for the user about the device that renders.
    pub(super) note: Option<String>,
}

impl Gl {
    /// Opens an off-screen context on the most suitable EGL device that opens.
    pub(super) fn new(model: &MjModel, wanted: &EglRequest) -> Result<Self, EnvError> {
        let devices = devices().map_err(absent)?;
        let mut reasons = Vec::new();
        for index in candidates(&devices.known, wanted)? {
            let device = &devices.known[index];
            let current = match devices.handles[index].open() {
                Ok(opened) => opened,
                Err(error) => {
                    reasons.push(format!("EGL device {index} ({device}): {error}"));
                    continue;
                }
            };
            // SAFETY: `open` has just made a context current on this thread. It stays current
            // until drop: this file makes no other context current on a thread that has one (a
            // worker has one renderer), and `Gl` is not `Send`, because neither of its two contexts
            // is.
            let mut context = unsafe { MjrContext::new(model) };
            context.offscreen();
            return Ok(Self {
                context,
                renderer: current.renderer(),
                _current: current,
                device: device.clone(),
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
