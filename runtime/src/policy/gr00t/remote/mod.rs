//! A GR00T policy on another machine, through GR00T's own ZeroMQ protocol, as spoken by its
//! `PolicyClient`.
//!
//! ```text
//! start     get_modality_config ─► Modalities: keys, past steps, dialect ─► Wiring to the environment
//! episode   reset, before the first inference after it
//! chunk     get_action: all rows without actions in one batch ─► {key: [rows, horizon, width]} ─► Chunks
//! ```

mod policy;
mod protocol;
mod settings;

pub use policy::Gr00tRemote;
pub use settings::RemoteSettings;
