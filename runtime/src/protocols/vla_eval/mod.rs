//! vla-eval's protocol over websockets: that of any subclass of its `ModelServer`, and of its
//! benchmarks.
//!
//! ```text
//! Observation ─► Wiring: {images: {…}, states, task_description} ─► VlaEvalClient
//!                    hello, episode_start, observation, episode_end ──► │ one websocket for
//! {"actions": [dim] or [horizon, dim]} ─► Chunk ◄────────────────────── │ each environment
//! ```
//! The reference is the package `vla-eval` 0.8.0: `vla_eval.connection` is its client, and
//! `vla_eval.model_servers.serve` its server. A server keeps a session for each connection, with
//! the rest of the last chunk and whatever the model remembers, so every environment has a
//! connection of its own. A connection that is lost in the middle of an episode costs that episode,
//! because the server has forgotten its beginning; before the first answer it is made again.

mod client;
mod hello;
mod observation;
mod picture;
mod server;

#[cfg(test)]
mod client_tests;
#[cfg(test)]
pub(crate) mod server_tests;

pub(crate) use server::{PATH, VlaEvalServer, greet_early, is_hello};
