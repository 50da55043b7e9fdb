//! A GR00T policy on another machine, through GR00T's own ZeroMQ protocol, as spoken by its
//! `PolicyClient`.
//!
//! ```text
//! start     get_modality_config ─► Modalities: keys, past steps, dialect ─► Wiring to environment
//! episode   reset, before the first inference after it
//! chunk     get_action: one batch of all rows due ─► {key: [rows, horizon, width]} ─► Chunks
//! ```

mod policy;
mod protocol;
mod settings;

pub use settings::RemoteSettings;
