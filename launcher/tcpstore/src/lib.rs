//! An implementation of torch's TCPStore, hosted by the launcher, with which ranks of any torch
//! version can rendezvous.
//!
//! ```text
//! socket ─► server ─► wire ─► table ─► server ─► outbox ─► socket      client: for other nodes
//!                    (pure)  (pure: values, queues, waits)
//! ```
//!
//! A store is a map from byte strings to byte strings, with queues and one blocking operation,
//! `WAIT`. As in torch there is no authentication: whoever reaches the port may write, so a store
//! whose ranks are all on this machine listens on loopback only. What a client sends can close its
//! own connection and nothing else. Sizes are checked before memory is allocated, the server stops
//! reading from slow readers, it drops dead connections, and when resources run out it evicts
//! silent clients first. [`limits`] has the numbers.
//!
//! Source: torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp, torch 2.11, as described in
//! `spec/launcher.md` section 6.

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
mod value;
pub mod waits;
pub mod wire;

pub use client::StoreClient;
pub use error::StoreError;
pub use port_owner::PortOwner;
pub use server::{Scope, ServerHandle, StoreServer};
pub use table::StoreRefusal;
