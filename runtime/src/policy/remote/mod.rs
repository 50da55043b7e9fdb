//! Policies in another process: connections to a policy server that may start late, disappear, or
//! come back.
//!
//! ```text
//! gr00t::remote, openpi, xpolicylab
//!   └─► Caller ─► ServerConnection: Req (ZeroMQ) ────────────────────────────► PatientStream (TCP)
//!         │                         WebsocketConnection ─► ServerStream (TLS) ─┘
//!         ├─────► RetryPatience: when to retry, and when to give up
//!         └─────► Lifeline: messages to the user, and cancellation
//! ```
//! An unreachable server is tried again for `remote_retry_s`, with growing pauses; an error that
//! the server reports is not retried. Nothing waits forever: every step, a lookup of the server's
//! name included, has the timeout `remote_timeout_s`, and the eval loop can cut the lifeline.

mod caller;
mod lifeline;
mod patience;
mod request;
mod resolver;
mod server;
mod server_stream;
mod stream;
mod tls;
mod websocket;

pub use caller::{CallError, Caller, ServerConnection};
pub use lifeline::Lifeline;
pub use patience::{RetryDecision, RetryPatience};
pub use request::Req;
pub use resolver::Resolver;
pub use server::{Defaults, PolicyServer, Token};
pub use server_stream::ServerStream;
pub use stream::PatientStream;
pub use tls::TlsTrust;
pub(crate) use tls::read_certificates;
pub use websocket::WebsocketConnection;

/// Maximum size of an answer in bytes; a chunk of actions has some kilobytes.
const LONGEST_ANSWER: usize = 256 << 20;
