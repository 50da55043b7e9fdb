//! The protocols of policy servers: what both sides say, without sockets and threads.
//!
//! ```text
//! policy::remote (lane, link) ─► ClientCodec ─┐   gr00t, openpi, vla_eval, xpolicylab   ┌─ wire
//! serve (peer, session) ───────► ServerCodec ─┴─► gr00t, openpi, vla_eval ──────────────┘
//! ```

pub mod gr00t;
pub(crate) mod observation;
pub(crate) mod openpi;
pub(crate) mod vla_eval;
