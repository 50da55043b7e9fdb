//! Tests of `rrun-rank serve` through its protocols: requests and answers.

mod client;
mod front;
mod goldens;
mod hostile;
mod innocent;
mod launcher;
mod limits;
mod policies;
mod python;
mod requests;
mod server;
mod soak;
mod stop;
mod vla_eval;
mod websocket;
