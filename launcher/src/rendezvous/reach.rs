//! Connects to the rendezvous store: resolves the endpoint, retries, and records what failed. Also
//! finds the address under which other nodes reach this one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep, timeout_at};

use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::tries::{HUNG_UP, Tries};
use tcpstore::{StoreClient, StoreError};

/// Pause before the second attempt to connect. It doubles up to [`LAST_RETRY`], because hosts
/// usually start within seconds but may take minutes.
const FIRST_RETRY: Duration = Duration::from_millis(20);

/// Longest pause between two attempts to connect.
const LAST_RETRY: Duration = Duration::from_secs(1);

/// Timeout for one address of several: an address that swallows packets must not delay the next one
/// for long.
const ONE_TRY: Duration = Duration::from_secs(5);

/// Connects to the store, retrying every address until one answers or the timeout has passed.
pub async fn connect(
    host: &str,
    port: u16,
    patience: Duration,
    request_timeout: Duration,
) -> Result<StoreClient, RendezvousError> {
    let deadline = Instant::now() + patience;
    let mut tries = Tries {
        host: host.to_owned(),
        ..Tries::default()
    };
    let mut pause = FIRST_RETRY;
    loop {
        if let Some(stream) = once(host, port, deadline, &mut tries).await {
            let (peer, left) = (
                stream.peer_addr(),
                deadline.saturating_duration_since(Instant::now()),
            );
            match StoreClient::over(stream, (host, port), left, request_timeout).await {
                // A host that shuts down during the handshake may come back.
                Err(StoreError::Lost { err, .. }) => {
                    tries
                        .addrs
                        .extend(peer.map(|peer| (peer, format!("{HUNG_UP}: {err}"))));
                }
                client => return Ok(client?),
            }
        }
        if Instant::now() + pause >= deadline {
            let endpoint = endpoint(host, port);
            return Err(RendezvousError::Unreachable {
                endpoint,
                timeout: patience,
                tries,
            });
        }
        sleep(pause).await;
        pause = (2 * pause).min(LAST_RETRY);
    }
}

async fn once(host: &str, port: u16, deadline: Instant, tries: &mut Tries) -> Option<TcpStream> {
    let addrs: Vec<SocketAddr> = match timeout_at(deadline, lookup_host((host, port))).await {
        Ok(Ok(addrs)) => addrs.collect(),
        Ok(Err(err)) => {
            tries.unresolved = Some(err.to_string());
            return None;
        }
        Err(_) => {
            tries.unresolved = Some("the name service does not answer".to_owned());
            return None;
        }
    };
    tries.unresolved = None;
    for addr in addrs {
        let until = deadline.min(Instant::now() + ONE_TRY);
        let err: io::Error = match timeout_at(until, TcpStream::connect(addr)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(err)) => err,
            // An attempt that was cut short says less than the one before it.
            Err(_) if until == deadline && tries.addrs.contains_key(&addr) => continue,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
        tries.addrs.insert(addr, err.to_string());
    }
    None
}

/// Returns `host:port`, with brackets where they are needed.
pub fn endpoint(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Returns whether the host of an endpoint means this node: `localhost`, its host name, or one of
/// its addresses.
pub async fn is_here(host: &str) -> bool {
    host == "localhost" || host == jobs::host::name() || own_address(host).await.is_some()
}

/// Returns the first address of this name that belongs to this node.
async fn own_address(host: &str) -> Option<IpAddr> {
    lookup_host((host, 0))
        .await
        .ok()?
        .map(|addr| addr.ip())
        .find(|ip| is_own(*ip))
}

/// Returns whether an address belongs to this node: only such an address can be bound.
fn is_own(ip: IpAddr) -> bool {
    !ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_ok()
}

/// Returns the address under which other nodes reach this one, if it hosts the store at `host`.
/// They found it by that name, so the name itself is returned if it only resolves to the loopback
/// address here.
pub async fn address_of_host(host: &str) -> String {
    match own_address(host).await {
        Some(ip) if !ip.is_loopback() => ip.to_canonical().to_string(),
        _ if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()) => {
            loopback()
        }
        _ => host.to_owned(),
    }
}

/// Returns the address under which other nodes reach this one: the local address of its connection
/// to the store. Torch uses the host name instead, which may not resolve or may lead to another
/// network (pytorch/pytorch#150532).
pub fn address_of_client(client: &StoreClient) -> String {
    match client.local_ip().map(|ip| ip.to_canonical()) {
        Some(ip) if !ip.is_loopback() => ip.to_string(),
        _ => loopback(),
    }
}

fn loopback() -> String {
    Ipv4Addr::LOCALHOST.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn loopback_addresses_and_names_are_here() {
        assert!(is_here("localhost").await && is_here("127.0.0.3").await);
        assert!(
            !is_here("192.0.2.1").await,
            "192.0.2.0/24 is for documentation"
        );
    }

    /// Returns why a store is not reached within this time.
    async fn refused(port: u16, limit: Duration, patience: Duration) -> String {
        let connected = connect("127.0.0.1", port, limit, patience).await;
        connected.expect_err("no store").to_string()
    }

    /// Returns a port, and what listens there and is no store.
    async fn stranger() -> (u16, tokio::net::TcpListener) {
        let stranger = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let stranger = stranger.expect("a port");
        let port = stranger.local_addr().expect("it has one").port();
        (port, stranger)
    }

    #[tokio::test]
    async fn nobody_listens_is_a_message_with_the_address() {
        let (_held, port) = crate::tests::held_port();
        let limit = Duration::from_millis(50);
        let err = refused(port, limit, limit).await;
        let told = format!("127.0.0.1:{port}: Connection refused");
        assert!(err.contains(&told), "{err}");
    }

    #[tokio::test]
    async fn a_stranger_that_says_nothing_is_named_when_the_patience_is_over() {
        let (port, _stranger) = stranger().await;
        let err = refused(port, Duration::from_millis(50), 60 * LAST_RETRY).await;
        let listens = format!("what listens at 127.0.0.1:{port}, `");
        let waits = format!("(pid {}), has not answered for ", std::process::id());
        assert!(err.starts_with(&listens) && err.contains(&waits), "{err}");
    }

    #[tokio::test]
    async fn a_stranger_that_hangs_up_is_said_to() {
        let (port, stranger) = stranger().await;
        let hangs_up = async {
            loop {
                drop(stranger.accept().await);
            }
        };
        let limit = Duration::from_millis(100);
        let err = tokio::select! {
            err = refused(port, limit, limit) => err,
            () = hangs_up => String::new(),
        };
        let told = format!("127.0.0.1:{port}: it closed the connection: ");
        assert!(err.contains(&told), "{err}");
        let asks = "(is that a store, and is the port right?)";
        assert!(err.ends_with(asks), "{err}");
    }

    #[tokio::test]
    async fn a_stranger_that_answers_is_named_by_its_answer() {
        let (port, stranger) = stranger().await;
        let answer = async {
            let (mut stream, _) = stranger.accept().await.expect("a caller");
            let answer = b"HTTP/1.1 400";
            let written = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
            written.expect("written");
            stream
        };
        let limit = Duration::from_secs(20);
        let (err, _stream) = tokio::join!(refused(port, limit, limit), answer);
        let told = "is not a store: it answered \"HTTP\"";
        assert!(err.contains(told), "{err}");
    }

    #[tokio::test]
    async fn a_host_on_loopback_is_found_on_loopback() {
        assert_eq!(address_of_host("127.0.0.2").await, "127.0.0.1");
        assert_eq!(address_of_host("localhost").await, "127.0.0.1");
        assert_eq!(address_of_host("192.0.2.1").await, "192.0.2.1");
    }
}
