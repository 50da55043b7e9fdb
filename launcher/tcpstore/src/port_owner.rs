//! Finds the process that listens on a port, so that the error message about a busy port can name
//! it. Best effort, from `/proc`.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// The `st` column of `/proc/net/tcp` for a listening socket (kernel: `TCP_LISTEN`).
const LISTEN: &str = "0A";

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
    /// Returns the process at the other end of a connection, if it is on this machine.
    pub(crate) fn at(ours: Option<SocketAddr>, theirs: Option<SocketAddr>) -> Option<PortOwner> {
        let theirs = theirs.filter(|theirs| ours.is_some_and(|ours| ours.ip() == theirs.ip()))?;
        PortOwner::of(theirs.port())
    }

    /// Returns the process that listens on this port, or `None` if it belongs to another user or
    /// has ended.
    pub fn of(port: u16) -> Option<PortOwner> {
        let inodes: Vec<String> = ["/proc/net/tcp6", "/proc/net/tcp"]
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| listeners(&table, port))
            .collect();
        let links: Vec<String> = inodes
            .iter()
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        let mut pids = fs::read_dir("/proc")
            .ok()?
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse().ok());
        let pid: u32 = pids.find(|pid| has_open(*pid, &links))?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm"))
            .ok()?
            .trim()
            .to_owned();
        Some(PortOwner { pid, name })
    }
}

/// Returns the inodes of the sockets that listen on this port. Columns: `sl local_address
/// rem_address st … uid timeout inode`.
fn listeners(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .filter(|columns| {
            columns.len() > 9 && columns[1].ends_with(&suffix) && columns[3] == LISTEN
        })
        .map(|columns| columns[9].to_owned())
        .collect()
}

fn has_open(pid: u32, links: &[String]) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|to| is_one_of(&to, links))
}

fn is_one_of(path: &Path, links: &[String]) -> bool {
    path.to_str()
        .is_some_and(|path| links.iter().any(|link| link == path))
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
        assert_eq!(listeners(table, 29520), ["4711"]);
        assert_eq!(listeners(table, 29521), [""; 0]);
    }
}
