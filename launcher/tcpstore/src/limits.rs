//! The limits of one store, in total and for each client, with the reason for each number. Sizes
//! are in bytes; other numbers are counts.
//!
//! Ranks come nowhere near these limits. They guard against other clients that reach the port,
//! because the store has no authentication. What takes some of the memory of a store holds a
//! [`Charge`], which gives it back when it is dropped.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};

use crate::error::StoreRefusal;

/// Longest key; a longer one closes the connection (torch: `MAX_STRING_LEN`).
pub const MAX_KEY: usize = 8 * 1024;

/// Longest value; a longer one closes the connection (torch: `MAX_PAYLOAD_LEN`).
pub const MAX_VALUE: usize = 8 * 1024 * 1024;

/// Most keys in one request; more close the connection (torch: `MAX_KEY_COUNT`).
pub const MAX_KEYS: usize = 128 * 1024;

/// Longest request; a longer one closes the connection. The limits above alone would allow a
/// `MULTI_SET` of one tebibyte.
pub const MAX_REQUEST: usize = 128 * 1024 * 1024;

/// Longest value that `APPEND` may produce. Torch has no limit; but a value that grows while the
/// old one is still being sent is copied, and copying this much takes 20 ms.
pub const MAX_APPENDED: usize = 8 * MAX_VALUE;

/// Most memory for values, keys, waits and connection buffers together; torch has no limit. It is
/// far above what rendezvous and object collectives leave behind, and below what would make the
/// node kill the launcher.
pub const MAX_HELD: usize = 4 * 1024 * 1024 * 1024;

/// The share of [`MAX_HELD`] for connection buffers, so that half-sent requests leave the rest to
/// values: as much as eight of the longest requests, or 128 of the longest values.
pub const MAX_BUFFERED: usize = MAX_HELD / 4;

/// Buffer size of a connection that is not counted. Requests of ranks fit into it, so none is
/// refused because other clients send much. A larger buffer is freed when it is empty, so that idle
/// clients cost little.
pub const FREE_BUFFER: usize = 64 * 1024;

/// Approximate memory for an entry besides its key and value.
pub const ENTRY: usize = 96;

/// Memory for one key in the wait of one client: 8 bytes in a list that doubles, and a share of the
/// wait. Ten thousand ranks that each wait for the keys of all others stay below [`MAX_HELD`].
pub const WAIT_ENTRY: usize = 32;

/// Bytes of replies above which they are sent, before further ones are made.
pub const SEND_AT: usize = 64 * 1024;

/// Values of at least so many bytes are sent from the table: copying shorter ones is cheaper than
/// sending them by themselves.
pub const SHARED: usize = 16 * 1024;

/// Keys processed for one client before the others have their turn. This takes 1 ms, or 3 ms on a
/// busy machine, where a request of [`MAX_KEYS`] takes half a second.
pub const TURN: usize = 1024;

/// Bytes of a request that count as one key of a [`TURN`]: copying them takes as long as finding a
/// key.
pub const TURN_BYTES: usize = 8 * 1024;

/// Timeout of a client that has not completed the handshake, or that does not read its replies. It
/// is generous: the kernel's buffers hold the replies of a rank that is merely stopped.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout of a client in the middle of a request. It is the default timeout of torch's stores,
/// after which a rank that waits for this client has given up.
pub const HALF_REQUEST_PATIENCE: Duration = Duration::from_secs(300);

/// Time after which a client without a request, or one that has sent half a request and then
/// nothing, may be evicted when resources run out. Torch's clients send their first request as soon
/// as they have connected, even on a machine that starts thousands of ranks at once.
pub const GRACE: Duration = Duration::from_secs(5);

/// File descriptors reserved for the rest of the launcher: pipes and logs.
const LEFT_OVER: usize = 256;

/// Assumed limit of file descriptors where the system does not report one.
const USUAL_FILES: usize = 1024;

/// The limits that depend on the process, or that tests lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Most connections. Further ones wait to be accepted, so that a flood of them cannot keep the
    /// launcher from opening files.
    pub clients: usize,
    /// Overrides [`GRACE`].
    pub grace: Duration,
    /// Overrides [`MAX_HELD`].
    pub held: usize,
    /// Overrides [`MAX_BUFFERED`].
    pub buffered: usize,
}

impl StoreLimits {
    /// Returns the limits of this process.
    pub fn of_process() -> StoreLimits {
        let soft = getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, _)| usize::try_from(soft));
        let files = soft.map_or(USUAL_FILES, |soft| soft.unwrap_or(usize::MAX));
        let clients = files.saturating_sub(LEFT_OVER).max(files / 2).max(1);
        StoreLimits {
            clients,
            ..StoreLimits::default()
        }
    }
}

impl Default for StoreLimits {
    fn default() -> StoreLimits {
        StoreLimits {
            clients: USUAL_FILES - LEFT_OVER,
            grace: GRACE,
            held: MAX_HELD,
            buffered: MAX_BUFFERED,
        }
    }
}

/// A number of bytes of which no more than a limit is held at a time.
#[derive(Clone, Debug)]
pub struct Budget(Arc<(AtomicUsize, usize)>);

impl Budget {
    /// Returns a budget of `most` bytes.
    pub fn new(most: usize) -> Budget {
        Budget(Arc::new((AtomicUsize::new(0), most)))
    }

    /// Returns the bytes that are held.
    pub fn held(&self) -> usize {
        self.0.0.load(Ordering::Relaxed)
    }

    /// Returns whether so many bytes can be taken.
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.0.1.saturating_sub(self.held())
    }

    /// Takes some bytes.
    pub fn take(&self, bytes: usize) -> Result<Charge, StoreRefusal> {
        let mut charge = self.charge();
        charge.resize(bytes)?;
        Ok(charge)
    }

    /// Takes nothing yet.
    pub fn charge(&self) -> Charge {
        Charge {
            budget: Some(self.clone()),
            bytes: 0,
        }
    }
}

/// Bytes of a budget; of none by default.
#[derive(Debug, Default)]
pub struct Charge {
    budget: Option<Budget>,
    bytes: usize,
}

impl Charge {
    /// Returns the bytes that are taken.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes more bytes, or fewer; unless there is room for them, nothing changes.
    pub fn resize(&mut self, bytes: usize) -> Result<(), StoreRefusal> {
        let more = bytes.saturating_sub(self.bytes);
        if let Some(budget) = &self.budget {
            if more > 0 && !budget.has_room(more) {
                return Err(StoreRefusal::new(format!(
                    "the store holds {} of at most {} bytes, and has no room for more",
                    budget.held(),
                    budget.0.1
                )));
            }
            budget.0.0.fetch_add(more, Ordering::Relaxed);
            let fewer = self.bytes.saturating_sub(bytes);
            budget.0.0.fetch_sub(fewer, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(Budget(budget)) = &self.budget {
            budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// A value, which counts until the last reply with it has been sent.
pub type StoreValue = Arc<Charged>;

/// The bytes of a value, and what they take.
#[derive(Debug, Default)]
pub struct Charged {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What they take.
    pub charge: Charge,
}

impl From<Vec<u8>> for Charged {
    fn from(bytes: Vec<u8>) -> Charged {
        Charged {
            bytes,
            charge: Charge::default(),
        }
    }
}

impl Deref for Charged {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Charged {
    fn eq(&self, other: &Charged) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Charged {}
