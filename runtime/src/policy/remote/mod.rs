//! Policies in another process: connections to a policy server that may start late, disappear, or
//! come back.
//!
//! ```text
//! gr00t::remote, openpi ─► Caller ─► Connection: Req (ZeroMQ) or Websocket ─► Stream (TCP)
//!                            ├────► Patience: when to retry, and when to give up
//!                            └────► Lifeline: messages to the user, and cancellation
//! ```
//! An unreachable server is tried again for `remote_retry_s`, with growing pauses; an error that
//! the server reports is not retried. Nothing waits forever: every step has the timeout
//! `remote_timeout_s`, and the eval loop can cut the lifeline.

mod caller;
mod lifeline;
mod patience;
mod request;
mod server;
mod stream;
mod websocket;

pub use caller::{CallError, Caller, ServerConnection};
pub use lifeline::Lifeline;
pub use patience::{RetryDecision, RetryPatience};
pub use request::Req;
pub use server::{Defaults, PolicyServer, Token};
pub use stream::PatientStream;
pub use websocket::WebsocketConnection;

/// Maximum size of an answer in bytes; a chunk of actions has some kilobytes.
const LONGEST_ANSWER: usize = 256 << 20;
