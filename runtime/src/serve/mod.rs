//! The program `serve`: a policy that answers robots and simulators over the network.
//!
//! ```text
//!             ┌ door: one port; the first byte of a connection says which protocol it speaks
//! clients ◄──►├ zmtp ──────► gr00t (endpoints, two dialects) ─┬─► decoder (fair queue) ─► limits ─┐
//!             ├ websocket ─► openpi ──────────────────────────┘                                   │
//!             └ http: /healthz, /metrics ◄─ stats              ◄─ answers ◄─ desk (batcher) ◄─────┘
//!                                                                             └─► policy's thread
//! ```
//! Connections are tasks of one thread, decoding and inference have others; between them goes at most one request a
//! connection. In the thread of the connections nothing takes long: a message is read in slices, and before it is decoded
//! only its token is looked at.
//! Decisions are values without sockets and clocks: whose turn it is ([`fair_queue`]), who is inferred together
//! ([`batcher`]), who may stay connected ([`seats`]), what bytes of a peer mean ([`wire`]).
//!
//! A port speaks all protocols because they tell themselves apart: ZMTP begins with 0xff, HTTP with a letter. A robot
//! fleet then has one address a GPU, and its health is asked where it is served.

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

/// The clock of the connections; what is pure gets its instants from here.
#[expect(clippy::disallowed_methods, reason = "the connections are where time enters")]
fn now() -> Instant {
    Instant::now()
}
