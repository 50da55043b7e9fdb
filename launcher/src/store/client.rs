//! The asking end of the store, for agents on nodes that do not host it.
//!
//! Keys are the library's: a `/` is put before each, as torch's client does. Every request has the time given to
//! [`Client::connect`], [`Client::wait`] its own. A request that is dropped half way spoils the connection, and the next
//! one says so.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::store::error::{StoreError, authority};
use crate::store::port_owner::PortOwner;
use crate::store::reply::READY;
use crate::store::wire::Request;

/// Before the second try to connect; doubles up to [`LAST_RETRY`], as hosts start within seconds but may take minutes.
const FIRST_RETRY: Duration = Duration::from_millis(20);

/// Between later tries to connect.
const LAST_RETRY: Duration = Duration::from_secs(1);

/// What a time beyond all clocks is taken as.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Keys whose deletion is asked for before the answers are read: those have 8 bytes each, which always find room on their
/// way.
const DELETED_AT_ONCE: usize = 256;

/// Room taken at once for a reply; more grows with what arrives. Bytes.
const READ: u64 = 64 * 1024;

/// A connection to a store.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    addr: Arc<str>,
    timeout: Duration,
    /// False while a reply is under way, and for good if that was given up.
    is_idle: bool,
}

impl Client {
    /// Connects, trying again until there is a store or the time is over. Every later request has the same time.
    pub async fn connect(host: &str, port: u16, timeout: Duration) -> Result<Client, StoreError> {
        let addr: Arc<str> = authority(host, port).into();
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or(now + FOREVER);
        let mut pause = FIRST_RETRY;
        loop {
            let err = match timeout_at(deadline, TcpStream::connect((host, port))).await {
                Ok(Ok(stream)) => return Client { stream, addr, timeout, is_idle: true }.greet().await,
                Ok(Err(err)) => err,
                Err(_) => io::ErrorKind::TimedOut.into(),
            };
            if Instant::now() + pause >= deadline {
                return Err(StoreError::Unreachable { addr: addr.to_string(), timeout, err });
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LAST_RETRY);
        }
    }

    /// Takes over a connection that was made by the caller; every request has the time given, and the greeting no more than
    /// `patience`.
    pub async fn over(
        stream: TcpStream,
        (host, port): (&str, u16),
        patience: Duration,
        timeout: Duration,
    ) -> Result<Client, StoreError> {
        let addr = authority(host, port).into();
        let greeted = Client { stream, addr, timeout: timeout.min(patience), is_idle: true }.greet().await?;
        Ok(Client { timeout, ..greeted })
    }

    /// The address from which this node reaches the store.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.stream.local_addr().ok().map(|addr| addr.ip())
    }

    /// Whether a store is at the other end.
    async fn greet(self) -> Result<Client, StoreError> {
        let owner = self.owner();
        match self.exchange_greetings().await {
            Err(StoreError::Silent { addr, timeout }) => Err(StoreError::Mute { addr, timeout, owner: owner() }),
            Err(StoreError::NotAStore { addr, got, .. }) => Err(StoreError::NotAStore { addr, got, owner: owner() }),
            greeted => greeted,
        }
    }

    /// Who listens there, if that is on this machine.
    fn owner(&self) -> impl FnOnce() -> Option<PortOwner> + use<> {
        let (ours, theirs) = (self.stream.local_addr().ok(), self.stream.peer_addr().ok());
        move || {
            theirs
                .filter(|theirs| ours.is_some_and(|ours| ours.ip() == theirs.ip()))
                .and_then(|it| PortOwner::of(it.port()))
        }
    }

    async fn exchange_greetings(mut self) -> Result<Client, StoreError> {
        self.stream.set_nodelay(true).map_err(|err| self.lost(err))?;
        let sent = std::process::id();
        let mut greeting = Vec::new();
        Request::Validate.encode(&mut greeting); // with the ping in one segment: torch 2.11 refuses a split one
        Request::Ping { nonce: sent }.encode(&mut greeting);
        let read = async |stream: &mut TcpStream| {
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await.map(|_| answer)
        };
        let got = self.exchange(&greeting, read).await?;
        let is_store = u32::from_le_bytes(got) == sent;
        if is_store { Ok(self) } else { Err(StoreError::NotAStore { addr: self.addr.to_string(), got, owner: None }) }
    }

    /// Stores a value.
    pub async fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.send(&Request::Set { key: &wire(key), value }).await
    }

    /// The value, when the key exists.
    pub async fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.wait(&[key], self.timeout).await?;
        self.ask(&Request::Get { key: &wire(key) }, async |stream| read_value(stream).await).await
    }

    /// Adds to the decimal number that the value is, 0 if absent; the sum.
    pub async fn add(&mut self, key: &str, delta: i64) -> Result<i64, StoreError> {
        self.ask(&Request::Add { key: &wire(key), delta }, async |stream| stream.read_i64_le().await).await
    }

    /// Counts this client in under `init/`, the only key without a slash before it, as torch's clients do in a store
    /// that is made for a known number of them; how many there are now.
    pub async fn count_in(&mut self) -> Result<i64, StoreError> {
        self.ask(&Request::Add { key: b"init/", delta: 1 }, async |stream| stream.read_i64_le().await).await
    }

    /// All keys that clients have stored, as they travel: with the `/` before them.
    pub async fn keys(&mut self) -> Result<Vec<Vec<u8>>, StoreError> {
        let read = async |stream: &mut TcpStream| {
            let count = stream.read_i64_le().await?;
            let mut keys = Vec::new();
            for _ in 0..count {
                keys.push(read_value(stream).await?);
            }
            Ok(keys)
        };
        self.ask(&Request::ListKeys, read).await
    }

    /// Removes a key, given as it travels.
    pub async fn delete(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.delete_all(&[key]).await
    }

    /// Removes keys, given as they travel: many at a time, as each would wait for the network.
    pub async fn delete_all(&mut self, keys: &[impl AsRef<[u8]>]) -> Result<(), StoreError> {
        for some in keys.chunks(DELETED_AT_ONCE) {
            let mut bytes = Vec::new();
            some.iter().for_each(|key| Request::Delete { key: key.as_ref() }.encode(&mut bytes));
            let read = async |stream: &mut TcpStream| {
                for _ in some {
                    stream.read_i64_le().await?;
                }
                Ok(())
            };
            self.exchange(&bytes, read).await?;
        }
        Ok(())
    }

    /// Stores `desired` if the value is `expected`, or absent and `expected` is empty; the value then, which is
    /// `expected` if the key is absent and should not be.
    pub async fn compare_set(&mut self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.ask(&Request::CompareSet { key: &wire(key), expected, desired }, async |stream| read_value(stream).await)
            .await
    }

    /// The values as they are now, empty where absent.
    pub async fn peek(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError> {
        let wire: Vec<_> = keys.iter().map(|key| wire(key)).collect();
        let request = Request::MultiGet { keys: wire.iter().map(Vec::as_slice).collect() };
        let read = async |stream: &mut TcpStream| {
            let mut values = Vec::with_capacity(keys.len());
            for _ in keys {
                values.push(read_value(stream).await?);
            }
            Ok(values)
        };
        self.ask(&request, read).await
    }

    /// Whether all keys exist.
    pub async fn check(&mut self, keys: &[&str]) -> Result<bool, StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| wire(key)).collect();
        let request = Request::Check { keys: keys.iter().map(Vec::as_slice).collect() };
        Ok(self.ask(&request, async |stream| stream.read_u8().await).await? == READY)
    }

    /// Stores all of them.
    pub async fn multi_set(&mut self, pairs: &[(&str, &[u8])]) -> Result<(), StoreError> {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (wire(key), *value)).collect();
        self.send(&Request::MultiSet { pairs: pairs.iter().map(|(key, value)| (key.as_slice(), *value)).collect() })
            .await
    }

    /// The values, when all keys exist.
    pub async fn multi_get(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError> {
        self.wait(keys, self.timeout).await?;
        self.peek(keys).await
    }

    /// Ends when all keys exist.
    pub async fn wait(&mut self, keys: &[&str], timeout: Duration) -> Result<(), StoreError> {
        let wire: Vec<_> = keys.iter().map(|key| wire(key)).collect();
        self.send(&Request::Wait { keys: wire.iter().map(Vec::as_slice).collect() }).await?;
        self.is_idle = false;
        let came = match tokio::time::timeout(timeout, self.stream.read_u8()).await {
            Ok(reply) => reply.map(|_| true).map_err(|err| self.lost(err))?,
            Err(_) => self.cancel_wait().await?,
        };
        self.is_idle = true;
        let missing = || StoreError::Missing { addr: self.addr.to_string(), keys: quoted(keys), timeout };
        if came { Ok(()) } else { Err(missing()) }
    }

    /// Whether the wait was over before the store heard of it: then two replies come.
    async fn cancel_wait(&mut self) -> Result<bool, StoreError> {
        self.is_idle = true;
        let read = async |stream: &mut TcpStream| {
            let came = stream.read_u8().await? == READY;
            if came {
                stream.read_u8().await?;
            }
            Ok(came)
        };
        self.ask(&Request::CancelWait, read).await
    }

    async fn send(&mut self, request: &Request<'_>) -> Result<(), StoreError> {
        self.ask(request, async |_| Ok(())).await
    }

    async fn ask<T>(
        &mut self,
        request: &Request<'_>,
        read: impl AsyncFnOnce(&mut TcpStream) -> io::Result<T>,
    ) -> Result<T, StoreError> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.exchange(&bytes, read).await
    }

    async fn exchange<T>(
        &mut self,
        bytes: &[u8],
        read: impl AsyncFnOnce(&mut TcpStream) -> io::Result<T>,
    ) -> Result<T, StoreError> {
        if !std::mem::take(&mut self.is_idle) {
            return Err(StoreError::GivenUp { addr: self.addr.to_string() });
        }
        let stream = &mut self.stream;
        let both = async {
            stream.write_all(bytes).await?;
            read(stream).await
        };
        let silent = |_| StoreError::Silent { addr: self.addr.to_string(), timeout: self.timeout };
        let reply = timeout(self.timeout, both).await.map_err(silent)?.map_err(|err| self.lost(err))?;
        self.is_idle = true;
        Ok(reply)
    }

    fn lost(&self, err: io::Error) -> StoreError {
        StoreError::Lost { addr: self.addr.to_string(), err }
    }
}

/// The key as it travels.
fn wire(key: &str) -> Vec<u8> {
    [b"/", key.as_bytes()].concat()
}

async fn read_value(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u64_le().await?;
    let mut value = Vec::with_capacity(length.min(READ) as usize);
    stream.take(length).read_to_end(&mut value).await?;
    if value.len() as u64 == length { Ok(value) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn quoted(keys: &[&str]) -> String {
    keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
