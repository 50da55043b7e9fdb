//! GR00T's protocol over ZeroMQ, as spoken by its `PolicyClient` and `PolicyServer`
//! (gr00t/policy/server_client.py, N1.7).
//!
//! ```text
//! start     get_modality_config ─► keys, past steps, dialect ─► Wiring to environment
//! episode   reset, before the first inference after it
//! chunk     get_action: one batch of all rows due ─► {key: [rows, horizon, width]} ─► Chunks
//! ```

mod client;
mod server;
pub mod validation;

#[cfg(test)]
mod tests;

pub(crate) use server::Gr00tServer;
