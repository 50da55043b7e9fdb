//! Tests that call the libraries of the rank, with libtorch in the process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod dist;
mod gpu;
mod parity;
mod processor;
