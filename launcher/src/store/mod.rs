//! torch's TCPStore, so that ranks of any torch version meet at a store that the launcher hosts.
//!
//! ```text
//! socket ─► server ─► wire ─► table ─► server ─► outbox ─► socket      client: the other end, for agents of further nodes
//!                    (pure)  (pure: values, queues, waits)
//! ```
//!
//! A store is a map of bytes with queues beside it and one verb that blocks, `WAIT`. There is no authentication: whoever
//! reaches the port may write, as in torch; a store whose ranks are all on this machine listens on loopback alone. What a
//! client sends can close its own connection, nothing else: sizes are checked before memory is taken, a slow reader is not
//! read from, a dead one is dropped, and when there is no room for all, the silent go first. [`limits`] has the numbers.
//!
//! Source: torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp, torch 2.11, by `spec/launcher.md` section 6.

mod client;
mod connection;
mod error;
mod hub;
pub mod limits;
mod outbox;
mod port_owner;
mod reply;
mod retired;
mod server;
pub mod table;
mod waits;
pub mod wire;

pub use client::Client;
pub use error::StoreError;
pub use port_owner::PortOwner;
pub use server::{Scope, Server, ServerHandle};
pub use table::Refusal;
