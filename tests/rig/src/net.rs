//! Ports that nobody takes.
//!
//! The kernel gives out ports from 32768 upwards, to listeners at port 0 and to connections of
//! other tests, so a port that was picked there and closed may be gone when a program wants it.
//! These are below, and each belongs to this program until it ends: it holds a socket without a
//! file whose name has the port. Such names are known in one network namespace, as ports are.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;

/// The ports to give, below torchrun's own (29500), which launches without a port ask for.
const FIRST: u16 = 10_000;
const LAST: u16 = 29_000;

/// The ports of this program, each with the socket that holds it.
static HELD: Mutex<Held> = Mutex::new(Held {
    next: 0,
    sockets: Vec::new(),
});

struct Held {
    /// The port to try next; 0 before the first.
    next: u16,
    sockets: Vec<UnixListener>,
}

/// Returns a port on which nothing listens, for this program alone.
pub fn port() -> u16 {
    ports(1)
}

/// Returns the first of `count` such ports in a row.
pub fn ports(count: u16) -> u16 {
    let mut held = HELD.lock().unwrap_or_else(|err| err.into_inner());
    if held.next == 0 {
        // Programs that start at once begin apart.
        held.next = FIRST + (std::process::id() % 1_000) as u16 * 18;
    }
    for _ in FIRST..LAST {
        let fits = held.next + count <= LAST;
        let first = if fits { held.next } else { FIRST };
        held.next = first + 1;
        let sockets: Option<Vec<UnixListener>> = (first..first + count).map(hold).collect();
        if let Some(sockets) = sockets {
            held.sockets.extend(sockets);
            held.next = first + count;
            return first;
        }
    }
    panic!("no {count} free ports from {FIRST} to {LAST}");
}

/// Holds a port if nobody else does and nothing listens on it.
fn hold(port: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("rrun-test-port-{port}")).unwrap();
    let held = UnixListener::bind_addr(&name).ok()?;
    TcpListener::bind(("0.0.0.0", port)).ok()?;
    Some(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let mut ports: Vec<u16> = (0..100).map(|_| port()).collect();
        assert!(ports.iter().all(|port| hold(*port).is_none()));
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 100);
    }

    #[test]
    fn ports_in_a_row_are_all_held() {
        let first = ports(3);
        assert!((first..first + 3).all(|port| hold(port).is_none()));
    }
}
