//! Tests with sockets: ranks are played by this process.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};

use tokio::time::timeout;

use super::*;

/// Time limit, longer than any step here takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

fn front() -> (FrontPort, SocketAddr) {
    let plan = ServePlan {
        gpus: 0,
        // Any free port.
        front: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)),
        job: None,
    };
    let front = FrontPort::open(Some(&plan), 2).unwrap().unwrap();
    let address = front.address();
    (front, address)
}

/// Joins as a rank.
fn join(front: &FrontPort, local_rank: u32) -> unix::UnixStream {
    let address = unix::SocketAddr::from_abstract_name(front.socket()).unwrap();
    let mut rank = unix::UnixStream::connect_addr(&address).unwrap();
    rank.write_all(&local_rank.to_le_bytes()).unwrap();
    rank.set_read_timeout(Some(DEADLINE)).unwrap();
    rank
}

/// Waits, as a rank, for the byte that comes with a connection. The descriptor is dropped.
async fn take(rank: unix::UnixStream) -> unix::UnixStream {
    let taking = tokio::task::spawn_blocking(move || {
        let mut rank = rank;
        rank.read_exact(&mut [0]).unwrap();
        rank
    });
    timeout(DEADLINE, taking).await.unwrap().unwrap()
}

/// Ends a rank. Closing its socket is not enough: a process that a test beside this one is starting
/// has a copy until it executes its program.
fn die(rank: unix::UnixStream) {
    rank.shutdown(std::net::Shutdown::Both).unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn a_connection_waits_for_a_rank_that_is_ready() {
    runtime().block_on(async {
        let (front, address) = front();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        die(take(join(&front, 0)).await);
        // The rank has closed its copy, and the launcher keeps none.
        let closed = tokio::task::spawn_blocking(move || client.read(&mut [0]));
        assert_eq!(
            timeout(DEADLINE, closed).await.unwrap().unwrap().unwrap(),
            0
        );
    });
}

#[test]
fn a_rank_that_is_gone_gets_nothing_more() {
    runtime().block_on(async {
        let (front, address) = front();
        let first = join(&front, 0);
        let _one = std::net::TcpStream::connect(address).unwrap();
        die(take(first).await);
        // Whether the front port has noticed or not, the connection goes to the rank that lives.
        let second = join(&front, 1);
        let _other = std::net::TcpStream::connect(address).unwrap();
        take(second).await;
    });
}

#[test]
fn a_port_in_use_is_refused_with_the_option() {
    runtime().block_on(async {
        let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let plan = ServePlan {
            gpus: 0,
            front: taken.local_addr().ok(),
            job: None,
        };
        let text = format!("{:#}", FrontPort::open(Some(&plan), 2).unwrap_err());
        assert!(
            text.contains("(--front-port): Address already in use"),
            "{text}"
        );
        assert!(FrontPort::open(None, 2).unwrap().is_none());
    });
}
