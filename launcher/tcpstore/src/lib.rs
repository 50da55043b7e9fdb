//! torch's TCPStore: a server, with which ranks of any torch version can rendezvous, and clients.
//!
//! ```text
//! socket ─► server ─► connection ─► wire, table ─► connection ─► socket    client: of a launcher's loop
//!                     (a request     (pure)                               store:  of ranks, blocking
//!                      at a time)
//! ```
//!
//! A store is a map from byte strings to byte strings, with queues and one blocking operation,
//! `WAIT`. As in torch there is no authentication: whoever reaches the port may write, so a store
//! whose ranks are all on this machine listens on loopback only. What a client sends can close its
//! own connection and nothing else. Sizes are checked before memory is allocated, the server does
//! not read from slow readers, it drops dead connections, and when resources run out it evicts
//! silent clients. [`limits`] has the numbers.
//!
//! Every request of a client ends by a deadline, whatever the server or the network does.
//!
//! Source: torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp, torch 2.11, as described in
//! `spec/launcher.md` section 6.

#![forbid(unsafe_code)]

mod client;
mod connect;
mod connection;
mod error;
pub mod limits;
mod reply;
mod server;
mod store;
pub mod table;
pub mod wire;

pub use client::StoreClient;
pub use connect::{StoreAddr, authority};
pub use error::{PortOwner, StoreError, StoreRefusal};
pub use reply::StoreReply;
pub use server::{Scope, ServerHandle, StoreServer};
pub use store::{Ask, Deadline, Store};
