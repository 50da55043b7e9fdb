//! A policy behind openpi's websocket protocol: π0, and any other server that behaves like
//! `WebsocketPolicyServer`.
//!
//! ```text
//! Observation ─► Wiring: the server's keys ─► Picture: 224 × 224 with black bars ─► one request
//! {"actions": [horizon, action_dim]} ─► Chunk
//! ```
//! The protocol allows one observation per request. Arena's client asks for one environment after
//! the other. Here each environment has its own connection, so that the server already has the next
//! request when it has answered one, and may infer several together.

pub(in crate::policy) mod picture;
mod policy;
mod settings;

pub use settings::OpenpiSettings;
