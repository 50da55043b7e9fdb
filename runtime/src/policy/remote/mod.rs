//! Policies in another process: connections to a policy server that comes late, goes away or comes back.
//!
//! ```text
//! gr00t::remote, openpi ─► Caller ─► Connection: Req (ZeroMQ) or Websocket ─► Stream: TCP with deadlines
//!                            ├────► Patience: when to try again, and when no more
//!                            └────► Lifeline: what the user is told, and that it is over
//! ```
//! A server that is away is tried again, with growing pauses, for `remote_retry_s`; what a server says is wrong is not.
//! Nothing here waits without an end: every step has `remote_timeout_s`, and whoever holds the other end of the lifeline
//! can cut it.

mod caller;
mod lifeline;
mod patience;
mod request;
mod server;
mod stream;
mod websocket;

pub use caller::{Caller, Connection, Trouble};
pub use lifeline::Lifeline;
pub use patience::{Next, Patience};
pub use request::Req;
pub use server::{Defaults, Server, Token};
pub use stream::Stream;
pub use websocket::Websocket;

/// The longest answer that is read, in bytes: a chunk of actions has some kilobytes.
const LONGEST_ANSWER: usize = 256 << 20;

#[expect(clippy::disallowed_methods, reason = "deadlines of connections to other machines")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
