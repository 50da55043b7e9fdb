//! The store client, for agents on nodes that do not host the store.
//!
//! Keys are the caller's: the client puts a `/` before each, as torch's client does. Every request
//! has the timeout given to [`StoreClient::connect`]; [`StoreClient::wait`] takes its own. A
//! request whose future is dropped half way makes the connection unusable, and the next request
//! reports that.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{StoreError, authority};
use crate::port_owner::PortOwner;
use crate::reply::READY;
use crate::wire::StoreRequest;

/// Pause before the second attempt to connect. It doubles up to [`LAST_RETRY`], because hosts
/// usually start within seconds but may take minutes.
const FIRST_RETRY: Duration = Duration::from_millis(20);

/// Longest pause between two attempts to connect.
const LAST_RETRY: Duration = Duration::from_secs(1);

/// Stands for a deadline too far in the future for the clock.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Number of keys whose deletion is requested before the replies are read. Each reply has 8 bytes,
/// so they always fit into the socket buffers.
const DELETED_AT_ONCE: usize = 256;

/// Bytes allocated at first for a reply; the buffer grows with what arrives.
const READ: u64 = 64 * 1024;

/// A connection to a store.
#[derive(Debug)]
pub struct StoreClient {
    stream: TcpStream,
    addr: Arc<str>,
    timeout: Duration,
    /// False while a reply is awaited, and for good if that wait was abandoned.
    is_idle: bool,
}

impl StoreClient {
    /// Connects to a store, retrying until one answers or `timeout` has passed. Every later request
    /// has the same timeout.
    pub async fn connect(
        host: &str,
        port: u16,
        timeout: Duration,
    ) -> Result<StoreClient, StoreError> {
        let addr: Arc<str> = authority(host, port).into();
        let now = Instant::now();
        let deadline = now.checked_add(timeout).unwrap_or(now + FOREVER);
        let mut pause = FIRST_RETRY;
        loop {
            let err = match timeout_at(deadline, TcpStream::connect((host, port))).await {
                Ok(Ok(stream)) => {
                    return StoreClient {
                        stream,
                        addr,
                        timeout,
                        is_idle: true,
                    }
                    .greet()
                    .await;
                }
                Ok(Err(err)) => err,
                Err(_) => io::ErrorKind::TimedOut.into(),
            };
            if Instant::now() + pause >= deadline {
                return Err(StoreError::Unreachable {
                    addr: addr.to_string(),
                    timeout,
                    err,
                });
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LAST_RETRY);
        }
    }

    /// Takes over a connection that the caller has made. Every request has `timeout`, but the
    /// handshake no more than `patience`.
    pub async fn over(
        stream: TcpStream,
        (host, port): (&str, u16),
        patience: Duration,
        timeout: Duration,
    ) -> Result<StoreClient, StoreError> {
        let addr = authority(host, port).into();
        let greeted = StoreClient {
            stream,
            addr,
            timeout: timeout.min(patience),
            is_idle: true,
        }
        .greet()
        .await?;
        Ok(StoreClient { timeout, ..greeted })
    }

    /// Returns the local address of the connection to the store.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.stream.local_addr().ok().map(|addr| addr.ip())
    }

    /// Performs the handshake, which checks that the other end is a store.
    async fn greet(self) -> Result<StoreClient, StoreError> {
        let owner = self.owner();
        match self.exchange_greetings().await {
            Err(StoreError::Silent { addr, timeout }) => Err(StoreError::Mute {
                addr,
                timeout,
                owner: owner(),
            }),
            Err(StoreError::NotAStore { addr, got, .. }) => Err(StoreError::NotAStore {
                addr,
                got,
                owner: owner(),
            }),
            greeted => greeted,
        }
    }

    /// Returns a function that finds the process which listens there, if it is on this machine.
    fn owner(&self) -> impl FnOnce() -> Option<PortOwner> + use<> {
        let (ours, theirs) = (self.stream.local_addr().ok(), self.stream.peer_addr().ok());
        move || {
            theirs
                .filter(|theirs| ours.is_some_and(|ours| ours.ip() == theirs.ip()))
                .and_then(|it| PortOwner::of(it.port()))
        }
    }

    async fn exchange_greetings(mut self) -> Result<StoreClient, StoreError> {
        self.stream
            .set_nodelay(true)
            .map_err(|err| self.lost(err))?;
        let sent = std::process::id();
        let mut greeting = Vec::new();
        StoreRequest::Validate.encode(&mut greeting); // with the ping in one segment: torch 2.11 refuses a split one
        StoreRequest::Ping { nonce: sent }.encode(&mut greeting);
        let read = async |stream: &mut TcpStream| {
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await.map(|_| answer)
        };
        let got = self.exchange(&greeting, read).await?;
        let is_store = u32::from_le_bytes(got) == sent;
        if is_store {
            Ok(self)
        } else {
            Err(StoreError::NotAStore {
                addr: self.addr.to_string(),
                got,
                owner: None,
            })
        }
    }

    /// Stores a value.
    pub async fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.send(&StoreRequest::Set {
            key: &wire(key),
            value,
        })
        .await
    }

    /// Appends a value to the queue of this key.
    pub async fn push(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.send(&StoreRequest::QueuePush {
            key: &wire(key),
            value,
        })
        .await
    }

    /// Waits until the key exists, and returns its value.
    pub async fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.wait(&[key], self.timeout).await?;
        self.ask(&StoreRequest::Get { key: &wire(key) }, async |stream| {
            read_value(stream).await
        })
        .await
    }

    /// Adds `delta` to the decimal number stored under the key (0 if absent), and returns the sum.
    pub async fn add(&mut self, key: &str, delta: i64) -> Result<i64, StoreError> {
        self.ask(
            &StoreRequest::Add {
                key: &wire(key),
                delta,
            },
            async |stream| stream.read_i64_le().await,
        )
        .await
    }

    /// Counts this client under `init/`. It is the only key without a leading slash; torch's clients
    /// do the same in a store for a known number of workers.
    pub async fn count_in(&mut self) -> Result<(), StoreError> {
        self.add_to_count(1).await.map(drop)
    }

    /// Returns the number of clients that have counted themselves so far.
    pub async fn counted_in(&mut self) -> Result<usize, StoreError> {
        let count = self.add_to_count(0).await?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    async fn add_to_count(&mut self, delta: i64) -> Result<i64, StoreError> {
        self.ask(
            &StoreRequest::Add {
                key: b"init/",
                delta,
            },
            async |stream| stream.read_i64_le().await,
        )
        .await
    }

    /// Returns all keys that clients have stored, as they are on the wire: with the leading `/`.
    pub async fn keys(&mut self) -> Result<Vec<Vec<u8>>, StoreError> {
        let read = async |stream: &mut TcpStream| {
            let count = stream.read_i64_le().await?;
            let mut keys = Vec::new();
            for _ in 0..count {
                keys.push(read_value(stream).await?);
            }
            Ok(keys)
        };
        self.ask(&StoreRequest::ListKeys, read).await
    }

    /// Deletes a key, given as it is on the wire.
    pub async fn delete(&mut self, key: &[u8]) -> Result<(), StoreError> {
        self.delete_all(&[key]).await
    }

    /// Deletes keys, given as they are on the wire. Requests are pipelined, because each would
    /// otherwise wait for a network round trip.
    pub async fn delete_all(&mut self, keys: &[impl AsRef<[u8]>]) -> Result<(), StoreError> {
        for some in keys.chunks(DELETED_AT_ONCE) {
            let mut bytes = Vec::new();
            some.iter()
                .for_each(|key| StoreRequest::Delete { key: key.as_ref() }.encode(&mut bytes));
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

    /// Stores `desired` if the current value is `expected`, or if the key is absent and `expected`
    /// is empty. Returns the value after that; if the key is absent and `expected` is not empty,
    /// returns `expected`.
    pub async fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        self.ask(
            &StoreRequest::CompareSet {
                key: &wire(key),
                expected,
                desired,
            },
            async |stream| read_value(stream).await,
        )
        .await
    }

    /// Returns the current values without waiting, empty where a key is absent.
    pub async fn peek(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError> {
        let wire: Vec<_> = keys.iter().map(|key| wire(key)).collect();
        let request = StoreRequest::MultiGet {
            keys: wire.iter().map(Vec::as_slice).collect(),
        };
        let read = async |stream: &mut TcpStream| {
            let mut values = Vec::with_capacity(keys.len());
            for _ in keys {
                values.push(read_value(stream).await?);
            }
            Ok(values)
        };
        self.ask(&request, read).await
    }

    /// Returns whether all keys exist.
    pub async fn check(&mut self, keys: &[&str]) -> Result<bool, StoreError> {
        let keys: Vec<_> = keys.iter().map(|key| wire(key)).collect();
        let request = StoreRequest::Check {
            keys: keys.iter().map(Vec::as_slice).collect(),
        };
        Ok(self
            .ask(&request, async |stream| stream.read_u8().await)
            .await?
            == READY)
    }

    /// Stores all of these values.
    pub async fn multi_set(&mut self, pairs: &[(&str, &[u8])]) -> Result<(), StoreError> {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (wire(key), *value))
            .collect();
        self.send(&StoreRequest::MultiSet {
            pairs: pairs
                .iter()
                .map(|(key, value)| (key.as_slice(), *value))
                .collect(),
        })
        .await
    }

    /// Waits until all keys exist, and returns their values.
    pub async fn multi_get(&mut self, keys: &[&str]) -> Result<Vec<Vec<u8>>, StoreError> {
        self.wait(keys, self.timeout).await?;
        self.peek(keys).await
    }

    /// Waits until all keys exist.
    pub async fn wait(&mut self, keys: &[&str], timeout: Duration) -> Result<(), StoreError> {
        let wire: Vec<_> = keys.iter().map(|key| wire(key)).collect();
        self.send(&StoreRequest::Wait {
            keys: wire.iter().map(Vec::as_slice).collect(),
        })
        .await?;
        self.is_idle = false;
        let came = match tokio::time::timeout(timeout, self.stream.read_u8()).await {
            Ok(reply) => reply.map(|_| true).map_err(|err| self.lost(err))?,
            Err(_) => self.cancel_wait().await?,
        };
        self.is_idle = true;
        let missing = || StoreError::Missing {
            addr: self.addr.to_string(),
            keys: quoted(keys),
            timeout,
        };
        if came { Ok(()) } else { Err(missing()) }
    }

    /// Cancels a wait. Returns whether it had ended before the store received the cancellation;
    /// then two replies arrive.
    async fn cancel_wait(&mut self) -> Result<bool, StoreError> {
        self.is_idle = true;
        let read = async |stream: &mut TcpStream| {
            let came = stream.read_u8().await? == READY;
            if came {
                stream.read_u8().await?;
            }
            Ok(came)
        };
        self.ask(&StoreRequest::CancelWait, read).await
    }

    async fn send(&mut self, request: &StoreRequest<'_>) -> Result<(), StoreError> {
        self.ask(request, async |_| Ok(())).await
    }

    async fn ask<T>(
        &mut self,
        request: &StoreRequest<'_>,
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
            return Err(StoreError::GivenUp {
                addr: self.addr.to_string(),
            });
        }
        let stream = &mut self.stream;
        let both = async {
            stream.write_all(bytes).await?;
            read(stream).await
        };
        let silent = |_| StoreError::Silent {
            addr: self.addr.to_string(),
            timeout: self.timeout,
        };
        let reply = timeout(self.timeout, both)
            .await
            .map_err(silent)?
            .map_err(|err| self.lost(err))?;
        self.is_idle = true;
        Ok(reply)
    }

    fn lost(&self, err: io::Error) -> StoreError {
        StoreError::Lost {
            addr: self.addr.to_string(),
            err,
        }
    }
}

/// Returns the key as it is on the wire.
fn wire(key: &str) -> Vec<u8> {
    [b"/", key.as_bytes()].concat()
}

async fn read_value(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u64_le().await?;
    let mut value = Vec::with_capacity(length.min(READ) as usize);
    stream.take(length).read_to_end(&mut value).await?;
    if value.len() as u64 == length {
        Ok(value)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

fn quoted(keys: &[&str]) -> String {
    keys.iter()
        .map(|key| format!("`{key}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests;
