//! `rrun-rank`: one rank of an evaluation, with libtorch and the simulator in process.
//!
//! ```text
//! main ─► eval ─► policy, env, record, dist, device
//! main ─► serve ─► policy, wire, device
//! record, dist ─► nothing of ours but jobs
//! versions ─► dist
//! policy ─► wire ─► nothing of ours
//! policy ─► operators ─► dist
//! eval, serve ─► prometheus
//! policy, dist, eval, serve ─► torch_error ─► nothing of ours
//! ```

pub mod device;
pub mod dist;
pub mod env;
pub mod eval;
pub mod operators;
pub mod policy;
mod prometheus;
pub mod record;
pub mod serve;
mod torch_error;
pub mod versions;
pub mod wire;

/// Errors of libtorch, which come as panics and are told by whoever catches them, go to the log in one line; their text has
/// pages of C++ in it. Other panics are told as ever.
pub fn tell_panics_briefly() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>().filter(|text| torch_error::is_panic(text));
        let Some(text) = text else { return usual(info) };
        let at = info.location().map(|at| format!(" at {at}")).unwrap_or_default();
        tracing::debug!("panic{at}: {text}");
        let line = format!("libtorch{at}: {}", torch_error::first_line(text));
        eval::console::log(eval::console::Level::Warning, &line);
    }));
}
