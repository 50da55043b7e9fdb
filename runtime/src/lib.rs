//! `rrun-rank`: one rank of an evaluation, with libtorch and the simulator in one process.
//!
//! ```text
//! main ─► eval ──► policy, env, record, device      crates: report, torchlib (libtorch's C++)
//! main ─► serve ─► policy, device, protocols        crates: models, wire
//! main ─► probe ─► device, env, versions            questions of `rrun doctor`
//! policy ─► env, device, python, protocols          crates: models, torchlib
//! protocols ─► policy's rows and facts              crates: wire
//! record, device ─► env                             env ─► python
//! eval, serve ─► metrics, console
//! ```
//! The crate `jobs` is used everywhere.

mod clock;
mod console;
pub mod device;
pub mod env;
pub mod eval;
mod inbox;
mod joined;
mod metrics;
pub mod policy;
pub mod probe;
pub mod protocols;
mod python;
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
            .filter(|text| torchlib::torch_error::is_panic(text));
        let Some(text) = text else { return usual(info) };
        let at = info
            .location()
            .map(|at| format!(" at {at}"))
            .unwrap_or_default();
        tracing::debug!("panic{at}: {text}");
        let line = format!("libtorch{at}: {}", torchlib::torch_error::first_line(text));
        console::log(console::Level::Warning, &line);
    }));
}
