//! A policy on a model server of vla-eval: any subclass of its `ModelServer`.
//!
//! ```text
//! Observation ─► Wiring: {images: {…}, states, task_description} ─► VlaEvalClient
//!                    hello, episode_start, observation, episode_end ──► │ one websocket for
//! {"actions": [dim] or [horizon, dim]} ─► answer ─► Chunk ◄──────────── │ each environment
//! ```
//! The reference is the package `vla-eval` 0.8.0: `vla_eval.connection` is its client, and
//! `vla_eval.model_servers.serve` its server. A server keeps a session for each connection, with
//! the rest of the last chunk and whatever the model remembers, so every environment has a
//! connection of its own. A connection that is lost in the middle of an episode costs that episode,
//! because the server has forgotten its beginning; before the first answer it is made again.

mod answer;
mod hello;
mod policy;
mod settings;

#[cfg(test)]
mod tests;

pub use settings::VlaEvalSettings;
