//! The errors of communication between ranks.

use crate::ffi::exception::{CppException, ExceptionKind};
use crate::no_cuda::NoCuda;
use crate::store_addr::StoreAddr;
use std::time::Duration;

/// The reason why ranks could not work together.
#[derive(Debug, thiserror::Error)]
pub enum DistError {
    /// The store could not be reached.
    #[error("cannot reach the store at {addr}: {reason}")]
    Unreachable {
        /// Address of the store.
        addr: StoreAddr,
        /// c10d's error message.
        reason: String,
    },
    /// A peer or a key did not appear in time.
    #[error("timed out: {reason}")]
    TimedOut {
        /// c10d's error message.
        reason: String,
    },
    /// The connection to the store or to a peer was lost: its process ended or the network failed.
    #[error("connection lost: {reason}")]
    Lost {
        /// c10d's error message.
        reason: String,
    },
    /// The device is out of memory.
    #[error("out of memory: {reason}")]
    OutOfMemory {
        /// libtorch's error message.
        reason: String,
    },
    /// libtorch reported any other error.
    #[error("libtorch: {reason}")]
    Torch {
        /// libtorch's error message.
        reason: String,
    },
    /// NCCL was requested where CUDA cannot be used.
    #[error(transparent)]
    NoCuda(#[from] NoCuda),
    /// There are several ranks but no store.
    #[error("{world} ranks need a store to gather, none was given")]
    NoStore {
        /// Number of ranks.
        world: usize,
    },
    /// A call did not return and was left behind on its thread.
    #[error("the store did not answer within {after:?}")]
    Stuck {
        /// How long the caller waited.
        after: Duration,
    },
    /// A tensor or a rank does not fit the group.
    #[error("{what}")]
    Misuse {
        /// What was found and what is required.
        what: String,
    },
}

impl DistError {
    /// Returns whether another connection might succeed.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Stuck { .. })
    }

    /// Returns whether waiting longer might have helped.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Stuck { .. })
    }
}

impl From<CppException> for DistError {
    fn from(exception: CppException) -> Self {
        let reason = first_lines(&exception.text);
        match exception.kind {
            ExceptionKind::OutOfMemory => Self::OutOfMemory { reason },
            _ if says_timeout(&reason) => Self::TimedOut { reason },
            ExceptionKind::Network => Self::Lost { reason },
            _ if says_lost(&reason) => Self::Lost { reason },
            ExceptionKind::Store | ExceptionKind::Other => Self::Torch { reason },
        }
    }
}

/// Recognises timeouts by their text in torch 2.11: "wait timeout after 50ms", "The client socket
/// has timed out", gloo's "Timed out waiting 50ms".
fn says_timeout(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    ["timed out", "timeout after", "wait timeout"]
        .iter()
        .any(|words| reason.contains(words))
}

/// Recognises lost connections by their text, since gloo throws plain runtime errors: "Connection
/// closed by peer [127.0.0.1]:40001", "Connection reset by peer".
fn says_lost(reason: &str) -> bool {
    [
        "closed by peer",
        "reset by peer",
        "Connection refused",
        "Broken pipe",
    ]
    .iter()
    .any(|words| reason.contains(words))
}

/// Returns libtorch's message on one line, without the C++ stack frames that some errors contain.
fn first_lines(text: &str) -> String {
    let end = ["\nException raised from", "\nframe #0"]
        .iter()
        .filter_map(|mark| text.find(mark))
        .min();
    text[..end.unwrap_or(text.len())]
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ExceptionKind, text: &str) -> DistError {
        CppException {
            kind,
            text: text.to_owned(),
        }
        .into()
    }

    #[test]
    fn backtrace_is_cut_and_lines_are_joined() {
        let text = "wait timeout after 50ms,\n keys: /a\nException raised from doWait at x.cpp:1\nframe #0: b";
        assert_eq!(
            error(ExceptionKind::Store, text).to_string(),
            "timed out: wait timeout after 50ms, keys: /a"
        );
    }

    #[test]
    fn a_peer_that_is_gone_is_a_lost_connection() {
        assert!(matches!(
            error(
                ExceptionKind::Other,
                "[x.cc:1] Connection closed by peer [::1]:4"
            ),
            DistError::Lost { .. }
        ));
        assert!(matches!(
            error(ExceptionKind::Network, "failed to recv, got 0 bytes"),
            DistError::Lost { .. }
        ));
    }

    #[test]
    fn a_timeout_is_one_whoever_says_it() {
        assert!(
            error(
                ExceptionKind::Network,
                "The client socket has timed out after 1000ms"
            )
            .is_timeout()
        );
        assert!(
            error(
                ExceptionKind::Other,
                "[unbound_buffer.cc:78] Timed out waiting 300ms for recv"
            )
            .is_timeout()
        );
        assert!(!error(ExceptionKind::Other, "Tensor list must be nonempty").is_timeout());
    }
}
