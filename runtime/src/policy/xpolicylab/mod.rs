//! A policy behind XPolicyLab's `PolicyServer`, which serves the policies of its collection over a
//! websocket.
//!
//! ```text
//! connection  hello                              ─► hello_ack
//! episode     reset … trial_end                  ─► reset_result, trial_end_ack
//! chunk       infer: one observation             ─► infer_result: a list of actions ─► Chunk
//! ```
//! Follows `client_server/ws` of XPolicyLab, commit 7198143e of July 2026. Every message is a
//! binary frame of msgpack with the arrays of msgpack-numpy: a map with `message_type`,
//! `message_id`, `evaluation_id`, `trial_id`, `step` and `payload`. An answer repeats the
//! `message_id`; an error is a message of type `error` with `code` and `message`.
//!
//! The protocol has no sessions: a server has one model, which answers one request at a time
//! whoever asks, and `reset` resets all of it. An observation has `env_idx`, by which some policies
//! keep what they remember. So a rank needs one connection, and asks for one environment after the
//! other, in the same order in every run. `prepare_case` and `heartbeat` are not sent: no policy of
//! the collection uses the first, and the pings of the websocket do what the second does.

mod actions;
mod frame;
mod policy;
mod settings;

pub use actions::read_chunk;
pub use frame::{MessageType, payload};
pub use settings::XpolicylabSettings;
