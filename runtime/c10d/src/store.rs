//! torchrun's TCP store, through which ranks find each other and an evaluation gathers its results.

use crate::caller::Caller;
use crate::error::DistError;
use crate::ffi::exception::CppException;
use crate::ffi::store::StoreHandle;
use crate::store_addr::StoreAddr;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for an answer: a busy machine may delay the process that serves the store.
const ANSWER: Duration = Duration::from_secs(60);

/// Time that libtorch has to give up a connection by itself, because its error says more.
const GRACE: Duration = Duration::from_secs(2);

/// A connection to the store; clones and prefixed stores share it.
///
/// Calls from several threads run one after the other, so a call that waits for a key blocks the
/// others. A thread that waits for a long time should open a connection of its own.
///
/// Every call ends: if there is no answer in time, with [`DistError::Stuck`]. The connection is of
/// no use from then on, and further calls fail at once.
#[derive(Clone)]
pub struct Store {
    handle: StoreHandle,
    caller: Arc<Caller>,
    /// Time limit for an answer, in addition to the time that a call waits for a key.
    limit: Duration,
}

impl Store {
    /// Connects to the store at `addr`, and retries until `timeout`.
    ///
    /// With `serve`, this process hosts the store, which ends with it. This is for rank 0 under a
    /// torchrun whose agent hosts no store (`TORCHELASTIC_USE_AGENT_STORE` is not `True`). It does
    /// not wait for the other ranks.
    pub fn connect(
        addr: &StoreAddr,
        world: usize,
        serve: bool,
        timeout: Duration,
    ) -> Result<Self, DistError> {
        let unreachable = |reason: String| DistError::Unreachable {
            addr: addr.clone(),
            reason,
        };
        let caller = Caller::start().map_err(|err| unreachable(format!("no thread: {err}")))?;
        let (host, port) = (addr.host.clone(), addr.port);
        let connect = move || StoreHandle::connect(&host, port, world, serve, timeout);
        let handle = caller
            .within(timeout.saturating_add(GRACE), connect)
            .and_then(|connected| Ok(connected?))
            .map_err(|err| unreachable(err.to_string()))?;
        Ok(Self {
            handle,
            caller: Arc::new(caller),
            limit: ANSWER,
        })
    }

    /// Returns the same store with another time limit for an answer.
    pub fn answering_within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Makes a call that waits for a key at most `wait`.
    fn call<T: Send + 'static>(
        &self,
        wait: Duration,
        work: impl FnOnce(&StoreHandle) -> Result<T, CppException> + Send + 'static,
    ) -> Result<T, DistError> {
        let handle = self.handle.clone();
        let limit = wait.saturating_add(self.limit);
        let result = self.caller.within(limit, move || {
            let result = work(&handle);
            // Before the caller goes on: if it drops the store next, that ends with the caller's own.
            drop(handle);
            result
        })?;
        Ok(result?)
    }

    /// Makes a call that waits for no key.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&StoreHandle) -> Result<T, CppException> + Send + 'static,
    ) -> Result<T, DistError> {
        self.call(Duration::ZERO, work)
    }

    /// Returns the port of the store; if port 0 was requested, that of the server. Zero for a
    /// prefixed store.
    pub fn port(&self) -> u16 {
        self.handle.port()
    }

    /// Returns the same store with `prefix` and a slash before every key.
    pub fn prefix(&self, prefix: &str) -> Self {
        let handle = self
            .handle
            .prefix(prefix)
            .expect("a prefix store only keeps its two arguments");
        Self {
            handle,
            ..self.clone()
        }
    }

    /// Returns the part of the store in which `torch.distributed.init_process_group` makes its
    /// first group: `device` is `cpu` for Gloo and `cuda` for NCCL. A group made here and one made
    /// by Python form one group.
    pub fn default_group(&self, device: &str) -> Self {
        self.prefix("default_pg")
            .prefix("0/")
            .prefix(&format!("{device}/"))
    }

    /// Writes `value`, at most 8 MiB (the limit of the server), replacing the previous value.
    ///
    /// The server does not acknowledge it; a later call that reads shows whether it arrived.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), DistError> {
        let (key, value) = (key.to_owned(), value.to_vec());
        self.ask(move |handle| handle.set(&key, &value))
    }

    /// Returns the value of `key`, waiting for it at most `deadline`.
    pub fn get(&self, key: &str, deadline: Duration) -> Result<Vec<u8>, DistError> {
        let key = key.to_owned();
        self.call(deadline, move |handle| handle.get(&key, deadline))
    }

    /// Replaces the value of `key` by `desired` if it is `expected`; an empty `expected` also
    /// matches a missing key. Returns the resulting value of `key`, or `expected` if it has none.
    pub fn compare_set(
        &self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, DistError> {
        let (key, expected, desired) = (key.to_owned(), expected.to_vec(), desired.to_vec());
        self.ask(move |handle| handle.compare_set(&key, &expected, &desired))
    }

    /// Adds `delta` to a number, which is zero if it is missing, and returns the sum.
    pub fn add(&self, key: &str, delta: i64) -> Result<i64, DistError> {
        let key = key.to_owned();
        self.ask(move |handle| handle.add(&key, delta))
    }

    /// Returns whether `key` has a value now.
    pub fn check(&self, key: &str) -> Result<bool, DistError> {
        let key = key.to_owned();
        self.ask(move |handle| handle.check(&key))
    }

    /// Returns whether all of these keys have a value now.
    pub fn check_all(&self, keys: &[String]) -> Result<bool, DistError> {
        let keys = keys.to_vec();
        self.ask(move |handle| handle.check_all(&keys))
    }

    /// Returns the values of these keys, in their order, with one request. All of them must have a
    /// value, otherwise it waits as long as the store was given to connect.
    pub fn multi_get(&self, keys: &[String]) -> Result<Vec<Vec<u8>>, DistError> {
        let keys = keys.to_vec();
        self.ask(move |handle| handle.multi_get(&keys))
    }

    /// Waits at most `deadline` until `key` has a value.
    pub fn wait(&self, key: &str, deadline: Duration) -> Result<(), DistError> {
        self.wait_all(&[key], deadline)
    }

    /// Waits at most `deadline` until all of these keys have a value.
    pub fn wait_all<S: AsRef<str>>(&self, keys: &[S], deadline: Duration) -> Result<(), DistError> {
        let keys: Vec<String> = keys.iter().map(|key| key.as_ref().to_owned()).collect();
        self.call(deadline, move |handle| handle.wait(&keys, deadline))
    }

    /// Removes `key`; returns whether it existed.
    pub fn delete(&self, key: &str) -> Result<bool, DistError> {
        let key = key.to_owned();
        self.ask(move |handle| handle.delete(&key))
    }

    pub(super) fn handle(&self) -> &StoreHandle {
        &self.handle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(join(&server).get("a/k", WAIT).unwrap(), b"\0v\xff");
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
        assert!(server.multi_get(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_client_that_waits_for_many_keys_is_woken_by_the_last() {
        let server = serve().prefix("a");
        let keys = ["x", "y"].map(str::to_owned);
        server.set("y", b"").unwrap();
        let early = server.wait_all(&keys, Duration::from_millis(50));
        assert!(early.unwrap_err().is_timeout());
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
        assert!(waited.unwrap_err().is_timeout());
        let got = server.get("never", Duration::from_millis(50));
        assert!(got.unwrap_err().is_timeout());
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
        let wanted = "cannot reach the store at 127.0.0.1:1: ";
        assert!(text.starts_with(wanted), "{text}");
    }

    #[test]
    fn a_server_that_never_answers_is_given_up() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = StoreAddr::local(listener.local_addr().unwrap().port());
        let connect = move || Store::connect(&addr, 1, false, Duration::from_millis(300)).err();
        let ended = crate::deadline::within(Duration::from_secs(60), connect);
        let err = ended.expect("it ends").expect("there is no store");
        assert!(matches!(err, DistError::Unreachable { .. }), "{err}");
        drop(listener);
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
