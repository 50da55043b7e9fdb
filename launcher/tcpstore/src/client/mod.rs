//! The store client of the launcher, for agents on nodes that do not host the store.
//!
//! Keys are the caller's: the client puts a `/` before each, as torch's client does. Every request
//! has the timeout given to [`StoreClient::connect`]; [`StoreClient::wait`] takes its own. A
//! request whose future is dropped half way makes the connection unusable, and the next request
//! reports that.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::connect::authority;
use crate::error::{PortOwner, StoreError};
use crate::reply::StoreReply;
use crate::wire::{ParseStop, StoreRequest, wire_key, wire_keys};

/// Number of keys whose deletion is requested before the replies are read. Each reply has 8 bytes,
/// so they always fit into the socket buffers.
const DELETED_AT_ONCE: usize = 256;

/// Bytes allocated at once for a reply; the buffer grows with what arrives.
const READ: usize = 64 * 1024;

/// A connection to a store.
#[derive(Debug)]
pub struct StoreClient {
    stream: TcpStream,
    addr: Arc<str>,
    timeout: Duration,
    /// Bytes that came after the reply that was read last: an ended wait and its cancellation are
    /// answered together.
    input: Vec<u8>,
    /// False while a reply is awaited, and for good if that wait was abandoned.
    is_idle: bool,
}

impl StoreClient {
    /// Takes over a connection that the caller has made. Every request has `timeout`, but the
    /// handshake no more than `patience`.
    pub(crate) async fn over(
        stream: TcpStream,
        (host, port): (&str, u16),
        patience: Duration,
        timeout: Duration,
    ) -> Result<StoreClient, StoreError> {
        let mut client = StoreClient {
            stream,
            addr: authority(host, port).into(),
            timeout: timeout.min(patience),
            input: Vec::new(),
            is_idle: true,
        };
        client.greet().await?;
        Ok(StoreClient { timeout, ..client })
    }

    /// Returns the local address of the connection to the store.
    pub fn local_ip(&self) -> Option<IpAddr> {
        self.stream.local_addr().ok().map(|addr| addr.ip())
    }

    /// Performs the handshake, which checks that the other end is a store.
    async fn greet(&mut self) -> Result<(), StoreError> {
        // Asked before, because the other end may hang up.
        let ends = (self.stream.local_addr().ok(), self.stream.peer_addr().ok());
        self.stream
            .set_nodelay(true)
            .map_err(|err| self.lost(err))?;
        let sent = std::process::id();
        // They go into one segment, because torch 2.11 refuses a split handshake.
        let greeting = [StoreRequest::Validate, StoreRequest::Ping { nonce: sent }];
        let said = match self.exchange(&greeting, &greeting[1..]).await {
            Ok(replies) => match replies[..] {
                [StoreReply::Nonce(nonce)] if nonce == sent => return Ok(()),
                [StoreReply::Nonce(nonce)] => {
                    let got = nonce.to_le_bytes();
                    let got = got.escape_ascii();
                    format!("is not a store: it answered \"{got}\"; is the port right?")
                }
                _ => return Err(self.mistaken()),
            },
            Err(StoreError::Silent { timeout, .. }) => {
                let seconds = timeout.as_secs_f64();
                format!(
                    "has not answered for {seconds:.1} s: is it a store, and is the port right?"
                )
            }
            Err(err) => return Err(err),
        };
        let owner = PortOwner::at(ends.0, ends.1);
        let owner = owner.map(|owner| format!(", {owner},")).unwrap_or_default();
        Err(StoreError::Other(format!(
            "what listens at {}{owner} {said}",
            self.addr
        )))
    }

    /// Stores a value.
    pub async fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = &wire_key(key);
        self.tell(&StoreRequest::Set { key, value }).await
    }

    /// Appends a value to the queue of this key.
    pub async fn push(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = &wire_key(key);
        self.tell(&StoreRequest::QueuePush { key, value }).await
    }

    /// Waits until the key exists, and returns its value.
    pub async fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.wait(&[key], self.timeout).await?;
        let key = &wire_key(key);
        let reply = self.ask(&StoreRequest::Get { key }).await?;
        reply.into_value().ok_or_else(|| self.mistaken())
    }

    /// Adds `delta` to the decimal number stored under the key (0 if absent), and returns the sum.
    pub async fn add(&mut self, key: &str, delta: i64) -> Result<i64, StoreError> {
        self.add_to(&wire_key(key), delta).await
    }

    /// Counts this client under `init/`. It is the only key without a leading slash; torch's
    /// clients do the same in a store for a known number of workers.
    pub async fn count_in(&mut self) -> Result<(), StoreError> {
        self.add_to(StoreRequest::COUNT, 1).await.map(drop)
    }

    /// Returns the number of clients that have counted themselves so far.
    pub async fn counted_in(&mut self) -> Result<usize, StoreError> {
        let count = self.add_to(StoreRequest::COUNT, 0).await?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    async fn add_to(&mut self, key: &[u8], delta: i64) -> Result<i64, StoreError> {
        let reply = self.ask(&StoreRequest::Add { key, delta }).await?;
        reply.into_number().ok_or_else(|| self.mistaken())
    }

    /// Returns all keys that clients have stored, as they are on the wire: with the leading `/`.
    pub async fn keys(&mut self) -> Result<Vec<Vec<u8>>, StoreError> {
        match self.ask(&StoreRequest::ListKeys).await? {
            StoreReply::Keys(keys) => Ok(keys.iter().map(|key| key.to_vec()).collect()),
            _ => Err(self.mistaken()),
        }
    }

    /// Deletes keys, given as they are on the wire. Requests are pipelined, because each would
    /// otherwise wait for a network round trip.
    pub async fn delete_all(&mut self, keys: &[impl AsRef<[u8]>]) -> Result<(), StoreError> {
        for some in keys.chunks(DELETED_AT_ONCE) {
            let delete = |key| StoreRequest::Delete { key };
            let requests: Vec<_> = some.iter().map(|key| delete(key.as_ref())).collect();
            self.exchange(&requests, &requests).await?;
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
        let request = StoreRequest::CompareSet {
            key: &wire_key(key),
            expected,
            desired,
        };
        let reply = self.ask(&request).await?;
        reply.into_value().ok_or_else(|| self.mistaken())
    }

    /// Returns the current values without waiting, empty where a key is absent.
    pub async fn peek(&mut self, keys: &[impl AsRef<str>]) -> Result<Vec<Vec<u8>>, StoreError> {
        let keys = wire_keys(keys, "");
        let keys = keys.iter().map(Vec::as_slice).collect();
        let reply = self.ask(&StoreRequest::MultiGet { keys }).await?;
        reply.into_values().ok_or_else(|| self.mistaken())
    }

    /// Returns whether all keys exist.
    pub async fn check(&mut self, keys: &[impl AsRef<str>]) -> Result<bool, StoreError> {
        let keys = wire_keys(keys, "");
        let keys = keys.iter().map(Vec::as_slice).collect();
        let reply = self.ask(&StoreRequest::Check { keys }).await?;
        Ok(reply == StoreReply::Exist(true))
    }

    /// Stores all of these values.
    pub async fn multi_set<K: AsRef<str>, V: AsRef<[u8]>>(
        &mut self,
        pairs: &[(K, V)],
    ) -> Result<(), StoreError> {
        let keys: Vec<_> = pairs
            .iter()
            .map(|(key, _)| wire_key(key.as_ref()))
            .collect();
        let pairs = keys.iter().zip(pairs);
        let pairs = pairs
            .map(|(key, (_, value))| (&key[..], value.as_ref()))
            .collect();
        self.tell(&StoreRequest::MultiSet { pairs }).await
    }

    /// Waits until all keys exist.
    pub async fn wait(
        &mut self,
        keys: &[impl AsRef<str>],
        timeout: Duration,
    ) -> Result<(), StoreError> {
        let wire = wire_keys(keys, "");
        let request = StoreRequest::Wait {
            keys: wire.iter().map(Vec::as_slice).collect(),
        };
        match self.wait_for(&request, timeout).await? {
            StoreReply::StopWaiting => Ok(()),
            _ => Err(StoreError::missing(&self.addr, keys, timeout)),
        }
    }

    /// Makes a request and returns its reply, `None` if it has none. A `WAIT` may take `wait`, any
    /// other reply `answer`.
    pub(crate) async fn request(
        &mut self,
        request: &StoreRequest<'_>,
        wait: Duration,
        answer: Duration,
    ) -> Result<Option<StoreReply>, StoreError> {
        self.timeout = answer;
        if let StoreRequest::Wait { .. } = request {
            return self.wait_for(request, wait).await.map(Some);
        }
        if let Ok(None) = StoreReply::parse(request, &[]) {
            return self.tell(request).await.map(|()| None);
        }
        self.ask(request).await.map(Some)
    }

    /// Makes a `WAIT`, and cancels it after `timeout`. If it had ended before the store received
    /// the cancellation, two replies arrive.
    async fn wait_for(
        &mut self,
        request: &StoreRequest<'_>,
        timeout: Duration,
    ) -> Result<StoreReply, StoreError> {
        self.tell(request).await?;
        self.is_idle = false;
        let waited = receive(&mut self.stream, request, &mut self.input);
        if let Ok(reply) = tokio::time::timeout(timeout, waited).await {
            let reply = reply.map_err(|err| self.lost(err))?;
            self.is_idle = true;
            return Ok(reply);
        }
        self.is_idle = true;
        let reply = self.ask(&StoreRequest::CancelWait).await?;
        if reply == StoreReply::StopWaiting {
            self.exchange(&[], &[StoreRequest::CancelWait]).await?;
        }
        Ok(reply)
    }

    /// Makes a request that has no reply.
    async fn tell(&mut self, request: &StoreRequest<'_>) -> Result<(), StoreError> {
        self.exchange(slice::from_ref(request), &[]).await.map(drop)
    }

    async fn ask(&mut self, request: &StoreRequest<'_>) -> Result<StoreReply, StoreError> {
        let request = slice::from_ref(request);
        let replies = self.exchange(request, request).await?;
        replies.into_iter().next().ok_or_else(|| self.mistaken())
    }

    /// Makes requests, and returns the replies to those that are `awaited`.
    async fn exchange(
        &mut self,
        requests: &[StoreRequest<'_>],
        awaited: &[StoreRequest<'_>],
    ) -> Result<Vec<StoreReply>, StoreError> {
        if !std::mem::take(&mut self.is_idle) {
            return Err(self.lost(io::Error::other("a request was given up half way")));
        }
        let mut bytes = Vec::new();
        requests
            .iter()
            .for_each(|request| request.encode(&mut bytes));
        let (stream, input) = (&mut self.stream, &mut self.input);
        let both = async {
            stream.write_all(&bytes).await?;
            let mut replies = Vec::new();
            for request in awaited {
                replies.push(receive(stream, request, input).await?);
            }
            Ok(replies)
        };
        let silent = |_| StoreError::Silent {
            addr: self.addr.to_string(),
            timeout: self.timeout,
        };
        let replies = timeout(self.timeout, both)
            .await
            .map_err(silent)?
            .map_err(|err| self.lost(err))?;
        self.is_idle = true;
        Ok(replies)
    }

    fn lost(&self, err: io::Error) -> StoreError {
        StoreError::Lost {
            addr: self.addr.to_string(),
            err,
        }
    }

    fn mistaken(&self) -> StoreError {
        self.lost(ErrorKind::InvalidData.into())
    }
}

/// Receives the reply to `request`; bytes after it stay in `input`.
async fn receive(
    stream: &mut TcpStream,
    request: &StoreRequest<'_>,
    input: &mut Vec<u8>,
) -> io::Result<StoreReply> {
    loop {
        match StoreReply::parse(request, input) {
            Ok(Some((reply, length))) => {
                input.drain(..length);
                return Ok(reply);
            }
            Ok(None) => return Err(ErrorKind::InvalidInput.into()),
            Err(ParseStop::Refused(err)) => {
                return Err(io::Error::new(ErrorKind::InvalidData, err));
            }
            Err(ParseStop::Needs(needed)) => {
                input.reserve((needed - input.len()).min(READ));
                if stream.read_buf(input).await? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
