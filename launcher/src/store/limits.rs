//! What one store takes in all and from each client, with the reason for each number. Counts that have no unit are of
//! what the name says; sizes are bytes.
//!
//! Ranks come nowhere near these. They are for what else reaches the port, as a store asks nobody who they are.

use std::time::Duration;

use crate::process::files::FileLimit;

/// A longer key closes the connection (torch: `MAX_STRING_LEN`).
pub const MAX_KEY: usize = 8 * 1024;

/// A longer value closes the connection (torch: `MAX_PAYLOAD_LEN`).
pub const MAX_VALUE: usize = 8 * 1024 * 1024;

/// More keys in one request close the connection (torch: `MAX_KEY_COUNT`).
pub const MAX_KEYS: usize = 128 * 1024;

/// A longer request closes the connection: the limits above alone would let one `MULTI_SET` have a tebibyte.
pub const MAX_REQUEST: usize = 128 * 1024 * 1024;

/// What `APPEND` may make of a value. Torch has no limit; but a value is copied when it grows while somebody is still
/// being sent the old one, and this takes 20 ms.
pub const MAX_APPENDED: usize = 8 * MAX_VALUE;

/// What values, keys, waits and buffers of connections may take together; torch has no limit. Far above what rendezvous
/// and object collectives leave behind, below what would make the node kill the launcher.
pub const MAX_HELD: usize = 4 * 1024 * 1024 * 1024;

/// What buffers of connections may take of [`MAX_HELD`], so that half-sent requests leave the rest to values. As much as
/// eight of the longest requests, or 128 of the longest values.
pub const MAX_BUFFERED: usize = MAX_HELD / 4;

/// What a connection may buffer without that being counted: requests of ranks fit, so that none is refused because
/// others send much. A larger buffer is also given back when it is empty, so that idle clients cost little.
pub const FREE_BUFFER: usize = 64 * 1024;

/// What an entry takes besides its key and value, about.
pub const ENTRY: usize = 96;

/// What one key of one client's wait takes: 16 bytes in a list that doubles. Ten thousand ranks that wait for the keys of
/// all others at once stay below [`MAX_HELD`].
pub const WAIT_ENTRY: usize = 32;

/// With more replies than this not yet sent, no further request is looked at. One reply can go beyond it.
pub const HIGH_WATER: usize = 1024 * 1024;

/// Keys that are looked at for one client before the others have their turn: 1 ms, or 3 on a busy machine, where a request
/// of [`MAX_KEYS`] takes half a second.
pub const TURN: usize = 1024;

/// So much of a request counts as a key of a [`TURN`]: to copy it takes as long as to find a key.
pub const TURN_BYTES: usize = 8 * 1024;

/// A client that owes its greeting, or has replies to read and takes none of them, is dropped after this. Generous: the
/// kernel's buffers take the replies of a rank that is merely stopped.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A client that has sent half a request and sends no more is dropped after this: the default timeout of torch's stores,
/// after which a rank that waits for it has given up.
pub const HALF_REQUEST_PATIENCE: Duration = Duration::from_secs(300);

/// When room is needed, a client that has been silent for so long may have to go. Torch's clients say what they want as
/// soon as they have connected, also on a machine that starts thousands of ranks at once.
pub const GRACE: Duration = Duration::from_secs(5);

/// File descriptors that clients leave to the rest of the launcher: pipes, logs, pidfds.
const LEFT_OVER: usize = 256;

/// File descriptors a process may have, where the system does not say.
const USUAL_FILES: usize = 1024;

/// The limits that depend on the process, or that tests lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections beyond this wait to be accepted, so that a flood of them cannot keep the launcher from opening files.
    pub clients: usize,
    /// Instead of [`GRACE`].
    pub grace: Duration,
    /// Instead of [`MAX_HELD`].
    pub held: usize,
    /// Instead of [`MAX_BUFFERED`].
    pub buffered: usize,
}

impl Limits {
    /// Those of this process.
    pub fn of_process() -> Limits {
        let soft = FileLimit::current().map(|limit| usize::try_from(limit.soft).unwrap_or(usize::MAX));
        let files = soft.unwrap_or(USUAL_FILES);
        let clients = files.saturating_sub(LEFT_OVER).max(files / 2).max(1);
        Limits { clients, ..Limits::default() }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { clients: USUAL_FILES - LEFT_OVER, grace: GRACE, held: MAX_HELD, buffered: MAX_BUFFERED }
    }
}
