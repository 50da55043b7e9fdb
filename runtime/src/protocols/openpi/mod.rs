//! openpi's protocol over websockets, as spoken by its `WebsocketPolicyServer` and any other server
//! that behaves like it.
//!
//! ```text
//! Observation ─► Wiring: the server's keys ─► picture: 224 × 224 with black bars ─► one request
//! {"actions": [horizon, action_dim]} ─► Chunk
//! ```
//! The protocol allows one observation per request. Arena's client asks for one environment after
//! the other. Here each environment has its own connection, so that the server already has the next
//! request when it has answered one, and may infer several together.

mod client;
mod server;

pub(crate) use server::{OpenpiServer, metadata};
