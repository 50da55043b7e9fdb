//! Errors of hosting, reaching and querying a store. One about a busy port names the process that
//! listens there: best effort, from `/proc`.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The `st` column of `/proc/net/tcp` for a listening socket (kernel: `TCP_LISTEN`).
const LISTEN: &str = "0A";

/// The reason why a store could not be hosted, reached or queried. Addresses are `host:port`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The port is in use; it is 0 if any free port would have done.
    #[error(
        "cannot host the store at {addr}: the port is in use{by}; choose another with `--master-port`, or let \
         `--standalone` find a free one"
    )]
    PortInUse {
        /// The address.
        addr: String,
        /// The port.
        port: u16,
        /// ` by <owner>`, if [`StoreError::with_owner`] has found one.
        by: String,
    },
    /// The connection is of no use any more: the store has ended or has closed it, or an earlier
    /// request was given up half way, so that the next reply would belong to that one.
    #[error("lost the store at {addr}: {err}")]
    Lost {
        /// The address.
        addr: String,
        /// The system's error.
        err: io::Error,
    },
    /// The keys did not appear before the timeout.
    #[error("the store at {addr} does not have {keys} after {} s", .timeout.as_secs_f64())]
    Missing {
        /// The address.
        addr: String,
        /// The awaited keys.
        keys: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The store did not answer before the timeout.
    #[error("the store at {addr} has not answered for {} s", .timeout.as_secs_f64())]
    Silent {
        /// The address.
        addr: String,
        /// The timeout.
        timeout: Duration,
    },
    /// There is no store: nobody can listen, nobody answers, or somebody who is not a store.
    #[error("{0}")]
    Other(String),
}

impl StoreError {
    /// Returns whether another connection might succeed.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Silent { .. })
    }

    /// Returns whether keys are missing, and the connection can be used further.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    /// Looks for the process that uses the port. That goes through the open files of all processes,
    /// so it is for an error that will be read.
    #[must_use]
    pub fn with_owner(mut self) -> Self {
        if let Self::PortInUse { port, by, .. } = &mut self {
            *by = PortOwner::text(*port);
        }
        self
    }

    pub(crate) fn missing(addr: &str, keys: &[impl AsRef<str>], timeout: Duration) -> Self {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| format!("`{}`", key.as_ref()))
            .collect();
        Self::Missing {
            addr: addr.to_owned(),
            keys: keys.join(", "),
            timeout,
        }
    }
}

/// The reason why a server refuses a request, and closes the connection on which it came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreRefusal(String);

impl StoreRefusal {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl From<io::Error> for StoreRefusal {
    fn from(err: io::Error) -> Self {
        Self(err.to_string())
    }
}

/// A process that listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOwner {
    /// The process id.
    pub pid: u32,
    /// The name of its program, at most 15 bytes (kernel: `TASK_COMM_LEN`).
    pub name: String,
}

impl fmt::Display for PortOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (pid {})", self.name.escape_debug(), self.pid)
    }
}

impl PortOwner {
    /// Returns ` by <owner>` of a port that is in use, or nothing if nobody is found.
    pub fn text(port: u16) -> String {
        let owner = if port > 0 { PortOwner::of(port) } else { None };
        owner.map_or_else(String::new, |owner| format!(" by {owner}"))
    }

    /// Returns the process at the other end of a connection, if it is on this machine.
    pub(crate) fn at(ours: Option<SocketAddr>, theirs: Option<SocketAddr>) -> Option<PortOwner> {
        let theirs = theirs.filter(|theirs| ours.is_some_and(|ours| ours.ip() == theirs.ip()))?;
        PortOwner::of(theirs.port())
    }

    /// Returns the process that listens on this port, or `None` if it belongs to another user or
    /// has ended.
    fn of(port: u16) -> Option<PortOwner> {
        let tables = ["/proc/net/tcp6", "/proc/net/tcp"].iter();
        let tables = tables.filter_map(|table| fs::read_to_string(table).ok());
        let sockets: Vec<PathBuf> = tables.flat_map(|table| listeners(&table, port)).collect();
        let entries = fs::read_dir("/proc").ok()?.flatten();
        let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let pid: u32 = pids.find(|pid| has_open(*pid, &sockets))?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        let name = name.trim().to_owned();
        Some(PortOwner { pid, name })
    }
}

/// Returns the sockets that listen on this port, as the links to open files name them. Columns: `sl
/// local_address rem_address st … uid timeout inode`.
fn listeners(table: &str, port: u16) -> Vec<PathBuf> {
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .filter(|columns| {
            columns.len() > 9 && columns[1].ends_with(&suffix) && columns[3] == LISTEN
        })
        .map(|columns| format!("socket:[{}]", columns[9]).into())
        .collect()
}

fn has_open(pid: u32, sockets: &[PathBuf]) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let mut targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.any(|to| sockets.contains(&to))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = PortOwner::of(listener.local_addr().unwrap().port()).unwrap();
        assert_eq!(owner.pid, std::process::id());
    }

    #[test]
    fn connections_are_not_listeners() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:7350 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0\n\
             1: 0100007F:7350 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0\n";
        assert_eq!(listeners(table, 29520), [PathBuf::from("socket:[4711]")]);
        assert!(listeners(table, 29521).is_empty());
    }
}
