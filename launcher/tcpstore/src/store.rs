//! The client of ranks: blocking, with a deadline for every request.

use std::sync::Arc;
use std::time::Duration;

use crate::blocking::{BlockingClient, HostedStore};
use crate::connect::StoreAddr;
use crate::error::StoreError;
use crate::reply::StoreReply;
use crate::wire::{StoreRequest, wire_keys};

/// Time limit for an answer: a busy machine may delay the process that serves the store.
const ANSWER: Duration = Duration::from_secs(60);

/// Keys in one request of [`Store::find`].
const AT_ONCE: usize = 1024;

/// Whoever answers requests: a server at the other end of a connection, or a table in memory.
pub trait Ask: Send + Sync {
    /// Makes a request and returns its reply, `None` if it has none. A `WAIT` is cancelled after
    /// `wait`, and answered with [`StoreReply::WaitCanceled`]; any other reply may take `answer`.
    ///
    /// # Errors
    /// Returns an error if there is no reply in time. The connection is of no use from then on, and
    /// further requests fail at once.
    fn ask(
        &self,
        request: &StoreRequest<'_>,
        wait: Duration,
        answer: Duration,
    ) -> Result<Option<StoreReply>, StoreError>;

    /// Returns the address, for messages.
    fn addr(&self) -> String;
}

/// The part of a store with a prefix, which torch's `PrefixStore` with the same prefixes sees, too.
/// Clones and parts share a connection: a request that waits for a key blocks the others, so a
/// thread that waits for a long time should open a connection of its own.
#[derive(Clone)]
pub struct Store {
    asked: Arc<dyn Ask>,
    /// The server, if it is in this process.
    hosted: Option<Arc<HostedStore>>,
    /// Before every key, with its slash.
    prefix: String,
    /// Time limit for an answer, in addition to the time that a request waits for a key.
    limit: Duration,
}

impl Store {
    /// Connects to the store at `addr`, and retries until `timeout`. In a world of `world` ranks,
    /// it is counted as one of them, as by torch's clients; 0 is for a further connection.
    ///
    /// With `serve`, this process hosts the store, which ends with it. This is for rank 0 under a
    /// torchrun whose agent hosts no store (`TORCHELASTIC_USE_AGENT_STORE` is not `True`). It does
    /// not wait for the other ranks.
    ///
    /// # Errors
    /// Returns an error if no store answers in time, or none can be hosted.
    pub fn connect(
        addr: &StoreAddr,
        world: usize,
        serve: bool,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let hosted = serve.then(|| HostedStore::start(addr)).transpose()?;
        let addr = StoreAddr {
            port: hosted.as_ref().map_or(addr.port, |hosted| hosted.port),
            ..addr.clone()
        };
        let store = Self {
            hosted: hosted.map(Arc::new),
            ..Self::over(Arc::new(BlockingClient::connect(&addr, timeout)?))
        };
        if world > 0 && !serve {
            // A server in Python may wait until so many have come.
            let (key, delta) = (StoreRequest::COUNT, 1);
            store.number(&StoreRequest::Add { key, delta })?;
        }
        Ok(store)
    }

    /// Returns the store of whoever answers.
    pub fn over(asked: Arc<dyn Ask>) -> Self {
        Self {
            asked,
            hosted: None,
            prefix: String::new(),
            limit: ANSWER,
        }
    }

    /// Returns the same store with another time limit for an answer.
    pub fn answering_within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Returns the port of the store that this process hosts, or 0.
    pub fn port(&self) -> u16 {
        self.hosted.as_ref().map_or(0, |hosted| hosted.port)
    }

    /// Returns the same store with `prefix` and a slash before every key.
    pub fn prefix(&self, prefix: &str) -> Self {
        Self {
            prefix: format!("{}{prefix}/", self.prefix),
            ..self.clone()
        }
    }

    /// Writes `value`, at most 8 MiB (the limit of the server), replacing the previous value.
    ///
    /// The server does not acknowledge it; a later request that reads shows whether it arrived.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = &self.wire(key);
        self.ask(&StoreRequest::Set { key, value }).map(drop)
    }

    /// Appends `value` to the value of `key`, which is empty if it is missing. As [`Store::set`],
    /// it is not acknowledged.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn append(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = &self.wire(key);
        self.ask(&StoreRequest::Append { key, value }).map(drop)
    }

    /// Returns the value of `key`, waiting for it at most `wait`.
    ///
    /// # Errors
    /// Returns [`StoreError::Missing`] if it does not come, or an error if the store is lost.
    pub fn get(&self, key: &str, wait: Duration) -> Result<Vec<u8>, StoreError> {
        self.wait(key, wait)?;
        let key = &self.wire(key);
        let reply = self.ask(&StoreRequest::Get { key })?;
        self.expected(reply.and_then(StoreReply::into_value))
    }

    /// Replaces the value of `key` by `desired` if it is `expected`; an empty `expected` also
    /// matches a missing key. Returns the resulting value of `key`, or `expected` if it has none.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn compare_set(
        &self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let key = &self.wire(key);
        let reply = self.ask(&StoreRequest::CompareSet {
            key,
            expected,
            desired,
        })?;
        self.expected(reply.and_then(StoreReply::into_value))
    }

    /// Adds `delta` to a number, which is zero if it is missing, and returns the sum.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn add(&self, key: &str, delta: i64) -> Result<i64, StoreError> {
        let key = &self.wire(key);
        self.number(&StoreRequest::Add { key, delta })
    }

    /// Returns whether `key` has a value now.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn check(&self, key: &str) -> Result<bool, StoreError> {
        self.check_all(&[key])
    }

    /// Returns whether all of these keys have a value now.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn check_all<S: AsRef<str>>(&self, keys: &[S]) -> Result<bool, StoreError> {
        let keys = self.wire_all(keys);
        let keys = keys.iter().map(Vec::as_slice).collect();
        let reply = self.ask(&StoreRequest::Check { keys })?;
        Ok(reply == Some(StoreReply::Exist(true)))
    }

    /// Returns the values of these keys, in their order, with one request. All of them must have a
    /// value.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn multi_get<S: AsRef<str>>(&self, keys: &[S]) -> Result<Vec<Vec<u8>>, StoreError> {
        let keys = self.wire_all(keys);
        let keys = keys.iter().map(Vec::as_slice).collect();
        let reply = self.ask(&StoreRequest::MultiGet { keys })?;
        self.expected(reply.and_then(StoreReply::into_values))
    }

    /// Waits at most `wait` until `key` has a value.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn wait(&self, key: &str, wait: Duration) -> Result<(), StoreError> {
        self.wait_all(&[key], wait)
    }

    /// Waits at most `wait` until all of these keys have a value.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn wait_all<S: AsRef<str>>(&self, keys: &[S], wait: Duration) -> Result<(), StoreError> {
        let wire = self.wire_all(keys);
        let request = StoreRequest::Wait {
            keys: wire.iter().map(Vec::as_slice).collect(),
        };
        match self.asked.ask(&request, wait, self.limit)? {
            Some(StoreReply::StopWaiting) => Ok(()),
            _ => Err(StoreError::missing(&self.asked.addr(), keys, wait)),
        }
    }

    /// Removes `key`; returns whether it existed.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn delete(&self, key: &str) -> Result<bool, StoreError> {
        let key = &self.wire(key);
        Ok(self.number(&StoreRequest::Delete { key })? == 1)
    }

    /// Returns the values of those keys that have one now, in order of the keys. It needs two
    /// requests for each 1 024 keys, and some more around each key without a value.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn find(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut found = Vec::with_capacity(keys.len());
        for part in keys.chunks(AT_ONCE) {
            self.halve(part, &mut found)?;
        }
        Ok(found)
    }

    /// Adds the values to `found`; halves `keys` around those that have none.
    fn halve(&self, keys: &[String], found: &mut Vec<Option<Vec<u8>>>) -> Result<(), StoreError> {
        if self.check_all(keys)? {
            found.extend(self.multi_get(keys)?.into_iter().map(Some));
            return Ok(());
        }
        if keys.len() <= 1 {
            found.push(None);
            return Ok(());
        }
        let (first, rest) = keys.split_at(keys.len() / 2);
        self.halve(first, found)?;
        self.halve(rest, found)
    }

    fn wire(&self, key: &str) -> Vec<u8> {
        wire_keys(&[key], &self.prefix).remove(0)
    }

    fn wire_all<S: AsRef<str>>(&self, keys: &[S]) -> Vec<Vec<u8>> {
        wire_keys(keys, &self.prefix)
    }

    /// Makes a request that waits for no key.
    fn ask(&self, request: &StoreRequest<'_>) -> Result<Option<StoreReply>, StoreError> {
        self.asked.ask(request, Duration::ZERO, self.limit)
    }

    fn number(&self, request: &StoreRequest<'_>) -> Result<i64, StoreError> {
        let reply = self.ask(request)?;
        self.expected(reply.and_then(StoreReply::into_number))
    }

    /// Returns what a reply must contain.
    fn expected<T>(&self, found: Option<T>) -> Result<T, StoreError> {
        found.ok_or_else(|| StoreError::Lost {
            addr: self.asked.addr(),
            err: std::io::ErrorKind::InvalidData.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::blocking::Deadline;

    const WAIT: Duration = Duration::from_secs(10);

    fn serve() -> Store {
        Store::connect(&StoreAddr::local(0), 1, true, WAIT).unwrap()
    }

    fn join(server: &Store) -> Store {
        Store::connect(&StoreAddr::local(server.port()), 1, false, WAIT).unwrap()
    }

    #[test]
    fn what_one_client_writes_another_reads() {
        let server = serve();
        server.prefix("a").set("k", b"\0v\xff").unwrap();
        server.prefix("a").append("k", b"!").unwrap();
        assert_eq!(join(&server).get("a/k", WAIT).unwrap(), b"\0v\xff!");
    }

    #[test]
    fn empty_values_and_several_mebibytes_arrive() {
        let server = serve();
        let large: Vec<u8> = (0..3_000_000_u32).map(|i| i as u8).collect();
        server.set("empty", b"").unwrap();
        server.set("large", &large).unwrap();
        assert_eq!(server.get("empty", WAIT).unwrap(), b"");
        assert!(join(&server).get("large", WAIT).unwrap() == large);
    }

    #[test]
    fn many_values_are_had_with_one_request() {
        let server = serve().prefix("a");
        let keys = ["x", "y", "z"].map(str::to_owned);
        server.set("x", b"one").unwrap();
        server.set("y", b"").unwrap();
        assert!(server.check_all(&keys[..2]).unwrap());
        assert!(!server.check_all(&keys).unwrap());
        server.set("z", b"\0three").unwrap();
        assert!(server.check_all(&keys).unwrap());
        assert_eq!(
            server.multi_get(&keys).unwrap(),
            [&b"one"[..], b"", b"\0three"]
        );
        assert!(server.multi_get::<&str>(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_client_that_waits_for_many_keys_is_woken_by_the_last() {
        let server = serve().prefix("a");
        let keys = ["x", "y"].map(str::to_owned);
        server.set("y", b"").unwrap();
        let early = server.wait_all(&keys, Duration::from_millis(50));
        assert!(early.unwrap_err().is_missing());
        server.set("x", b"").unwrap();
        server.wait_all(&keys, WAIT).unwrap();
    }

    #[test]
    fn numbers_add_up_and_keys_go_away() {
        let server = serve();
        assert_eq!(server.add("n", 3).unwrap(), 3);
        assert_eq!(join(&server).add("n", -5).unwrap(), -2);
        assert!(server.check("n").unwrap());
        assert!(server.delete("n").unwrap());
        assert!(!server.delete("n").unwrap());
        assert!(!server.check("n").unwrap());
    }

    #[test]
    fn a_key_that_never_comes_is_a_timeout_even_with_no_time_left() {
        let server = serve();
        let waited = server.wait("never", Duration::ZERO);
        assert!(waited.unwrap_err().is_missing());
        let got = server.get("never", Duration::from_millis(50));
        assert!(got.unwrap_err().is_missing());
        assert!(
            !server.check("never").unwrap(),
            "the connection still works"
        );
    }

    #[test]
    fn a_waiting_client_is_woken() {
        let server = serve();
        let client = join(&server);
        let waiting = std::thread::spawn(move || client.get("late", WAIT));
        server.set("late", b"here").unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), b"here");
    }

    #[test]
    fn a_value_is_replaced_only_by_whoever_knows_it() {
        let server = serve();
        let client = join(&server);
        assert_eq!(
            client.compare_set("k", b"?", b"x").unwrap(),
            b"?",
            "there is nothing yet"
        );
        assert!(!client.check("k").unwrap());
        assert_eq!(client.compare_set("k", b"", b"one").unwrap(), b"one");
        assert_eq!(server.compare_set("k", b"", b"two").unwrap(), b"one");
        assert_eq!(server.compare_set("k", b"one", b"two").unwrap(), b"two");
        assert_eq!(client.compare_set("k", b"?", b"?").unwrap(), b"two");
        client.set("k", b"").unwrap();
        assert_eq!(
            client.compare_set("k", b"", b"three").unwrap(),
            b"three",
            "empty is as good as nothing"
        );
    }

    #[test]
    fn nobody_listening_is_named() {
        let addr = StoreAddr::local(1);
        let found = Store::connect(&addr, 1, false, Duration::from_millis(300));
        let text = found.err().expect("nobody listens").to_string();
        let wanted = "cannot reach the store at 127.0.0.1:1 within 0.3 s: ";
        assert!(text.starts_with(wanted), "{text}");
    }

    #[test]
    fn a_server_that_never_answers_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = StoreAddr::local(listener.local_addr().unwrap().port());
        let found = Store::connect(&addr, 1, false, Duration::from_millis(300));
        let text = found.err().expect("there is no store").to_string();
        assert!(text.contains("has not answered for 0.3 s"), "{text}");
        drop(listener);
    }

    /// Connects to a server that answers the handshake, and then does what `act` does.
    fn join_one_that(act: impl FnOnce(TcpStream) + Send + 'static) -> Store {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut greeting = [0; 10];
            stream.read_exact(&mut greeting).unwrap();
            stream.write_all(&greeting[6..]).unwrap();
            act(stream);
        });
        let store = Store::connect(&StoreAddr::local(port), 0, false, WAIT).unwrap();
        store.answering_within(Duration::from_millis(100))
    }

    #[test]
    fn a_server_that_vanishes_without_a_word_costs_one_time_limit_and_no_more() {
        let (_keep, vanished) = std::sync::mpsc::channel::<()>();
        let store = join_one_that(move |stream| {
            let _ = vanished.recv();
            drop(stream);
        });
        let err = store.add("n", 1).unwrap_err();
        assert!(matches!(err, StoreError::Silent { .. }), "{err}");
        let until = Deadline::after(WAIT);
        for _ in 0..1000 {
            let err = store.check("n").unwrap_err();
            assert!(matches!(err, StoreError::Lost { .. }), "{err}");
        }
        assert!(until.left() > WAIT / 2, "further requests fail at once");
    }

    #[test]
    fn a_wait_that_ends_while_it_is_cancelled_is_over_and_the_connection_still_works() {
        let store = join_one_that(|mut stream| {
            let mut byte = [0];
            while byte != [0x0c] {
                stream.read_exact(&mut byte).unwrap(); // until the cancellation
            }
            stream.write_all(&[0, 1]).unwrap();
            stream.read_exact(&mut [0; 8]).unwrap();
            stream.write_all(&[0]).unwrap();
            let _ = stream.read(&mut [0]);
        });
        store.wait("k", Duration::from_millis(10)).unwrap();
        assert!(store.check("k").unwrap());
    }

    #[test]
    fn an_answer_that_comes_byte_by_byte_has_the_same_time_limit() {
        let store = join_one_that(|mut stream| {
            stream.read_exact(&mut [0]).unwrap(); // of the request
            let endless = 1_000_000_u64.to_le_bytes().into_iter();
            for byte in endless.chain(std::iter::repeat(7)) {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
                rest();
            }
        });
        let err = store.compare_set("k", b"", b"").unwrap_err();
        assert!(matches!(err, StoreError::Silent { .. }), "{err}");
    }

    #[expect(clippy::disallowed_methods, reason = "a peer that is slow on purpose")]
    fn rest() {
        std::thread::sleep(Duration::from_millis(10));
    }

    #[test]
    fn a_host_with_a_zero_byte_is_refused() {
        let addr = StoreAddr {
            host: "a\0b".to_owned(),
            port: 1,
        };
        assert!(Store::connect(&addr, 1, false, WAIT).is_err());
    }
}
