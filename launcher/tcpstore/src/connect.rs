//! Where a store is, and how to connect to it if it may come later: resolves its name, tries every
//! address, and says what was tried.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep, timeout_at};

use crate::client::StoreClient;
use crate::error::StoreError;
use crate::store::FAR;

/// Pause before the second attempt to connect. It doubles up to [`LAST_RETRY`], because hosts
/// usually start within seconds but may take minutes.
const FIRST_RETRY: Duration = Duration::from_millis(20);

/// Longest pause between two attempts to connect.
const LAST_RETRY: Duration = Duration::from_secs(1);

/// Timeout for one address of several: an address that swallows packets must not delay the next one
/// for long.
const ONE_TRY: Duration = Duration::from_secs(5);

/// The error for an address whose listener closes the connection during the handshake.
const HUNG_UP: &str = "it closed the connection";

/// The address on which the store listens: `MASTER_ADDR` and `MASTER_PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAddr {
    /// Host name or IP address, IPv6 without brackets.
    pub host: String,
    /// TCP port of the store.
    pub port: u16,
}

impl StoreAddr {
    /// Returns the address of a port on this machine.
    pub fn local(port: u16) -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port,
        }
    }
}

impl fmt::Display for StoreAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&authority(&self.host, self.port))
    }
}

/// Returns `host:port`, with brackets if the host is an IPv6 address.
pub fn authority(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// The attempts to connect, and their last errors.
#[derive(Debug)]
struct Tries<'a> {
    host: &'a str,
    /// The resolver's error, if it returned no address.
    unresolved: Option<String>,
    addrs: BTreeMap<SocketAddr, String>,
}

impl StoreClient {
    /// Connects to a store, retrying until one answers or `timeout` has passed. Every later request
    /// has the same timeout.
    pub async fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, StoreError> {
        Self::connect_within(host, port, timeout, timeout).await
    }

    /// Connects to a store, retrying every address of `host` until one answers or `patience` is
    /// over. Every later request has `timeout`, and the handshake no more than either.
    pub async fn connect_within(
        host: &str,
        port: u16,
        patience: Duration,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let now = Instant::now();
        let deadline = now.checked_add(patience).unwrap_or(now + FAR);
        let mut tries = Tries {
            host,
            unresolved: None,
            addrs: BTreeMap::new(),
        };
        let mut pause = FIRST_RETRY;
        loop {
            if let Some((peer, stream)) = tries.once(port, deadline).await {
                let left = deadline.saturating_duration_since(Instant::now());
                match StoreClient::over(stream, (host, port), left, timeout).await {
                    // A host that shuts down during the handshake may come back.
                    Err(StoreError::Lost { err, .. }) => {
                        tries.addrs.insert(peer, format!("{HUNG_UP}: {err}"));
                    }
                    client => return client,
                }
            }
            let can_never_be = host.contains('\0');
            if can_never_be || Instant::now() + pause >= deadline {
                return Err(StoreError::Other(format!(
                    "cannot reach the store at {} within {} s: {tries}",
                    authority(host, port),
                    patience.as_secs_f64()
                )));
            }
            sleep(pause).await;
            pause = (2 * pause).min(LAST_RETRY);
        }
    }
}

impl Tries<'_> {
    /// Tries each address of the host, until one accepts the connection.
    async fn once(&mut self, port: u16, deadline: Instant) -> Option<(SocketAddr, TcpStream)> {
        let found = match timeout_at(deadline, lookup_host((self.host, port))).await {
            Ok(found) => found.map_err(|err| err.to_string()),
            Err(_) => Err("the name service does not answer".to_owned()),
        };
        self.unresolved = found.as_ref().err().cloned();
        for addr in found.ok()? {
            let until = deadline.min(Instant::now() + ONE_TRY);
            let err: io::Error = match timeout_at(until, TcpStream::connect(addr)).await {
                Ok(Ok(stream)) => return Some((addr, stream)),
                Ok(Err(err)) => err,
                // An attempt that was cut short says less than the one before it.
                Err(_) if until == deadline && self.addrs.contains_key(&addr) => continue,
                Err(_) => ErrorKind::TimedOut.into(),
            };
            self.addrs.insert(addr, err.to_string());
        }
        None
    }
}

impl fmt::Display for Tries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unresolved = self.unresolved.iter().map(|err| {
            format!(
                "`{}` does not resolve on this node ({err}); give an address, or a name that it \
                 knows",
                self.host
            )
        });
        let tried = self
            .addrs
            .iter()
            .map(|(addr, err)| format!("{addr}: {err}"));
        f.write_str(&unresolved.chain(tried).collect::<Vec<_>>().join("; "))?;
        let is_any = |what: fn(&str) -> bool| self.addrs.values().any(|err| what(err));
        f.write_str(if is_any(|err| err.starts_with(HUNG_UP)) {
            " (is that a store, and is the port right?)"
        } else if is_any(|err| err.contains("refused")) {
            " (nothing listens there: is the first node up, and is this its address and port?)"
        } else if !self.addrs.is_empty() {
            " (no answer: is the port open between the nodes, and is this the address of the right \
             network?)"
        } else {
            ""
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_is_said() {
        let tries = |unresolved: Option<&str>, addrs: &[(&str, &str)]| {
            let addr = |(addr, err): &(&str, &str)| (addr.parse().unwrap(), (*err).to_owned());
            let tries = Tries {
                host: "node0",
                unresolved: unresolved.map(str::to_owned),
                addrs: addrs.iter().map(addr).collect(),
            };
            tries.to_string()
        };
        let two = [
            ("10.0.0.1:29400", "Connection refused"),
            ("[fe80::1]:29400", "timed out"),
        ];
        let text = tries(None, &two);
        let wanted = "10.0.0.1:29400: Connection refused; [fe80::1]:29400: timed out (nothing";
        assert!(text.starts_with(wanted), "{text}");
        let text = tries(Some("x"), &two[1..]);
        assert!(
            text.starts_with("`node0` does not resolve on this node (x); give an address, or a ")
                && text.contains(" knows; [fe80::1]:29400: timed out (no answer: "),
            "{text}"
        );
    }

    #[test]
    fn an_ipv6_address_is_shown_in_brackets() {
        let addr = StoreAddr {
            host: "::1".to_owned(),
            port: 29500,
        };
        assert_eq!(addr.to_string(), "[::1]:29500");
    }
}
