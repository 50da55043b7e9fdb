//! A policy behind openpi's websocket protocol: π0 and whoever else serves as `WebsocketPolicyServer` does.
//!
//! ```text
//! Observation ─► Adapter: cameras and states by the server's names ─► Picture: 224 × 224 with black bars ─► one request
//! {"actions": [horizon, action_dim]} ─► Chunk
//! ```
//! A request has one observation, as the protocol has it. Arena's client asks for one environment after the other;
//! here each environment has a connection of its own, so that the server has the next request when it has answered one,
//! and may infer several together.

mod adapter;
mod picture;
mod policy;
mod settings;

pub use adapter::Adapter;
pub use policy::Openpi;
pub use settings::OpenpiSettings;
