//! `rrun-rank`: one rank of an evaluation, with libtorch and the simulator in one process.
//!
//! ```text
//! main ─► eval ──► policy, env, record, device      crates: c10d (libtorch's C++), jobs
//! main ─► serve ─► policy, device                            crates: c10d, wire, jobs
//! policy ─► env                                              crates: c10d, wire
//! eval, serve ─► prometheus, console, error_file, latency; all ─► clock, host
//! ```

mod clock;
mod console;
pub mod device;
pub mod env;
mod error_file;
pub mod eval;
mod host;
mod latency;
pub mod policy;
mod prometheus;
pub mod record;
pub mod serve;
pub mod versions;

/// Installs a panic hook that logs errors of libtorch in one line. These come as panics, which
/// their catchers report, and their text has pages of C++. Other panics are printed as usual.
pub fn tell_panics_briefly() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info
            .payload()
            .downcast_ref::<String>()
            .filter(|text| c10d::torch_error::is_panic(text));
        let Some(text) = text else { return usual(info) };
        let at = info
            .location()
            .map(|at| format!(" at {at}"))
            .unwrap_or_default();
        tracing::debug!("panic{at}: {text}");
        let line = format!("libtorch{at}: {}", c10d::torch_error::first_line(text));
        console::log(console::Level::Warning, &line);
    }));
}
