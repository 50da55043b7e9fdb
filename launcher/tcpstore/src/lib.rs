//! torch's TCPStore: a server, with which ranks of any torch version can rendezvous, and clients.
//!
//! ```text
//! socket ─► server ─► wire ─► table ─► server ─► outbox ─► socket    client: of a launcher's loop
//!                    (pure)  (pure: values, queues, waits)           store:  of ranks, blocking
//! ```
//!
//! A store is a map from byte strings to byte strings, with queues and one blocking operation,
//! `WAIT`. As in torch there is no authentication: whoever reaches the port may write, so a store
//! whose ranks are all on this machine listens on loopback only. What a client sends can close its
//! own connection and nothing else. Sizes are checked before memory is allocated, the server stops
//! reading from slow readers, it drops dead connections, and when resources run out it evicts
//! silent clients first. [`limits`] has the numbers.
//!
//! Every request of a client ends by a deadline, whatever the server or the network does.
//!
//! Source: torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp, torch 2.11, as described in
//! `spec/launcher.md` section 6.

#![forbid(unsafe_code)]

mod addr;
mod ask;
mod blocking;
mod client;
mod connect;
mod connection;
mod deadline;
mod error;
mod hosted;
mod hub;
pub mod limits;
pub mod memory;
mod outbox;
mod port_owner;
mod reply;
mod retired;
mod server;
mod store;
pub mod table;
mod value;
pub mod waits;
pub mod wire;

pub use addr::{StoreAddr, authority};
pub use ask::Ask;
pub use client::StoreClient;
pub use deadline::Deadline;
pub use error::{StoreError, StoreRefusal};
pub use port_owner::PortOwner;
pub use reply::StoreReply;
pub use server::{Scope, ServerHandle, StoreServer};
pub use store::Store;
