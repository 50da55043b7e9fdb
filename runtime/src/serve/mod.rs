//! The program `serve`: a policy server for robots and simulators.
//!
//! ```text
//!             ┌ listener: one port; the first byte of a connection tells its protocol
//! clients ◄──►├ zmtp ──────┬► session ─► gr00t, openpi, vla_eval ─► decoder ─► limits ┐
//!             ├ websocket ─┘                                                          │
//!             └ http: /healthz, /metrics ◄─ stats ◄─ answers ◄─ dispatcher (batcher) ◄┘
//!                                                                └─► policy thread (crate::policy)
//! ```
//! All connections are tasks of one thread; decoding and inference have threads of their own. At
//! most one request per connection is in flight between them. Nothing takes long in the
//! connections' thread: it reads messages in slices, and looks only for the token before a message
//! is decoded.
//!
//! Decisions are made by values without sockets or clocks: whose turn it is ([`fair_queue`]), which
//! rows are inferred together ([`batcher`]), which connections stay ([`connections`]), and what the
//! bytes of a peer mean ([`wire`]).
//!
//! One port serves all protocols because they can be told apart: ZMTP begins with 0xff, HTTP with a
//! letter. A robot fleet then has one address for each GPU, and its health check is at the same
//! address.

pub mod batcher;
pub mod connections;
pub mod fair_queue;
pub mod http;

pub(crate) mod card;
pub(crate) mod client;
mod decoder;
mod dispatcher;
mod listener;
mod program;
pub(crate) mod request;
pub(crate) mod server;
pub(crate) mod session;
mod slots;
pub(crate) mod stats;
mod websocket;
mod zmtp;

pub use program::main;
