//! The socket types of this side, and their READY commands.

use crate::WireError;
use crate::zmtp::frame::{COMMAND, frame};
use crate::zmtp::not_ready;

/// The socket type of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// Sends requests.
    Req,
    /// Sends replies.
    Rep,
}

impl Socket {
    fn name(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Rep => "REP",
        }
    }

    /// Returns the socket types to which this one can connect.
    fn peers(self) -> &'static [&'static str] {
        match self {
            Self::Req => &["REP", "ROUTER"],
            Self::Rep => &["REQ", "DEALER"],
        }
    }

    /// Returns the READY command, which follows the greeting.
    pub fn ready(self) -> Vec<u8> {
        frame(
            COMMAND,
            &[
                b"\x05READY\x0bSocket-Type\0\0\0\x03",
                self.name().as_bytes(),
            ]
            .concat(),
        )
    }

    /// Checks the socket type in the peer's READY command.
    ///
    /// # Errors
    /// Returns a [`WireError`] for an incompatible socket type and for malformed properties.
    pub fn check_ready(self, name: &[u8], mut properties: &[u8]) -> Result<(), WireError> {
        if name != b"READY" {
            return Err(not_ready());
        }
        while !properties.is_empty() {
            let (key, rest) = split(properties, 1).ok_or_else(not_ready)?;
            let (value, rest) = split(rest, 4).ok_or_else(not_ready)?;
            if key.eq_ignore_ascii_case(b"Socket-Type") {
                let wanted = self.peers();
                if wanted.iter().any(|peer| peer.as_bytes() == value) {
                    return Ok(());
                }
                let (found, wanted) = (String::from_utf8_lossy(value), wanted.join(" or "));
                let reason = format!("a {found} socket, expected {wanted}");
                return Err(WireError::new(reason));
            }
            properties = rest;
        }
        Err(not_ready())
    }
}

/// Splits off as many bytes as a length prefix of `width` bytes says, and returns them and the
/// rest.
fn split(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let length = bytes
        .get(..width)?
        .iter()
        .fold(0u64, |length, byte| length << 8 | u64::from(*byte));
    bytes[width..].split_at_checked(usize::try_from(length).ok()?)
}
