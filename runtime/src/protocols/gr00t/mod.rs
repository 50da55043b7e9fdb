//! GR00T's protocol over ZeroMQ, as spoken by its `PolicyClient` and `PolicyServer`.

mod server;
pub mod validation;

pub use server::Gr00tServer;
