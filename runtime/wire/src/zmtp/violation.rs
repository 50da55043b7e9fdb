//! Why a connection is closed.

/// Maximum number of frames in one message: an envelope of a few hops, the delimiter, the body.
pub(super) const MOST_FRAMES: usize = 16;

/// The reason why a connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The peer does not speak ZeroMQ.
    #[error("no ZMTP greeting")]
    Signature,
    /// The peer uses a protocol version from before 2013.
    #[error("ZMTP version {0}, expected 3")]
    Version(u8),
    /// The peer uses another security mechanism: PLAIN, CURVE or GSSAPI.
    #[error("security mechanism {0:?}, expected NULL")]
    Mechanism(String),
    /// The peer's socket type is incompatible with this one.
    #[error("a {found} socket, expected {}", wanted.join(" or "))]
    Socket {
        /// The peer's socket type.
        found: String,
        /// The compatible socket types.
        wanted: &'static [&'static str],
    },
    /// The peer sent something other than READY, or a malformed READY.
    #[error("no READY command after the greeting")]
    Ready,
    /// A frame has reserved flags, or a command continues in another frame.
    #[error("frame flags {0:#04x}")]
    Flags(u8),
    /// A command arrived in the middle of a message.
    #[error("a command between the parts of a message")]
    Interleaved,
    /// A message is too long.
    #[error("a message of {found} bytes or more, expected at most {most}")]
    Long {
        /// Length of the message as far as it is known, in bytes.
        found: u64,
        /// The limit in bytes.
        most: usize,
    },
    /// A command is too long; the value is its length in bytes.
    #[error("a command of {0} bytes")]
    LongCommand(u64),
    /// A message has too many frames.
    #[error("a message of more than {MOST_FRAMES} parts")]
    Parts,
}
