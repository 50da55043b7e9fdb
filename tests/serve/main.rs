//! `rrun-rank serve` from the outside: what clients send, and what they get.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod client;
mod goldens;
mod hostile;
mod innocent;
mod launcher;
mod limits;
mod python;
mod requests;
mod server;
mod soak;
mod stop;
mod websocket;
