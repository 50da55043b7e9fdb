//! `rrun-rank`: one rank of an evaluation, with libtorch and the simulator in process.
//!
//! ```text
//! main ─► eval ──► policy, env, record, device      crates: c10d (libtorch's C++), jobs
//! main ─► serve ─► policy, device                            crates: c10d, wire, jobs
//! policy ─► env                                              crates: c10d, wire
//! eval, serve ─► prometheus
//! ```

pub mod device;
pub mod env;
pub mod eval;
pub mod policy;
mod prometheus;
pub mod record;
pub mod serve;
pub mod versions;

/// Errors of libtorch, which come as panics and are told by whoever catches them, go to the log in one line; their text has
/// pages of C++ in it. Other panics are told as ever.
pub fn tell_panics_briefly() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>().filter(|text| c10d::torch_error::is_panic(text));
        let Some(text) = text else { return usual(info) };
        let at = info.location().map(|at| format!(" at {at}")).unwrap_or_default();
        tracing::debug!("panic{at}: {text}");
        let line = format!("libtorch{at}: {}", c10d::torch_error::first_line(text));
        eval::console::log(eval::console::Level::Warning, &line);
    }));
}
