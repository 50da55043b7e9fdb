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
//! policy, dist ─► torch_error ─► nothing of ours
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
