//! vla-eval's protocol over websockets: that of the package `vla-eval` 0.8.0.

mod observation;
mod picture;
mod server;

#[cfg(test)]
pub(crate) mod server_tests;

pub(crate) use server::{PATH, VlaEvalServer, greet_early, is_hello};
