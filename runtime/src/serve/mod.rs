//! The program `serve`: a policy server for robots and simulators.
//!
//! ```text
//!             ┌ door (listener): one port; the first byte of a connection tells its protocol
//! clients ◄──►├ zmtp ──────► gr00t (endpoints, 2 dialects) ─┬─► decoder (fair queue) ─► limits ─┐
//!             ├ websocket ─► openpi ────────────────────────┘                                   │
//!             └ http: /healthz, /metrics ◄─ stats  ◄─ answers ◄─ desk (dispatcher, batcher) ◄───┘
//!                                                                      └─► policy thread
//! ```
//! Connections are tasks of one thread, decoding and inference have others; between them goes at most one request a
//! connection. In the thread of the connections nothing takes long: a message is read in slices, and before it is decoded
//! only its token is looked at.
//! Decisions are values without sockets and clocks: whose turn it is ([`fair_queue`]), who is inferred together
//! ([`batcher`]), who may stay connected ([`seats`]), what bytes of a peer mean ([`wire`]).
//!
//! One port serves all protocols because they can be told apart: ZMTP begins with 0xff, HTTP with a
//! letter. A robot fleet then has one address for each GPU, and its health check is at the same
//! address.

use std::time::Instant;

pub mod batcher;
pub mod fair_queue;
pub mod http;
pub mod seats;

mod client;
mod decoder;
mod desk;
mod door;
mod gr00t;
mod house;
mod limits;
mod metered;
mod observation;
mod openpi;
mod policy_thread;
mod program;
mod stats;
mod websocket;
mod zmtp;

pub use program::main;

/// The clock of the connections; pure modules get their instants from here.
#[expect(clippy::disallowed_methods, reason = "the connections are where time enters")]
fn now() -> Instant {
    Instant::now()
}
