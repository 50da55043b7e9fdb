//! Looks up the addresses of a host within a deadline. The system's resolver has none and cannot be
//! interrupted, so it runs in a thread of its own.
//!
//! A lookup that outlives its caller's patience goes on, and the next attempt waits for it. So a
//! resolver that hangs costs one thread, however often the server is tried.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::now;
use crate::policy::remote::{CallError, Lifeline};

/// Interval at which a wait checks the lifeline.
const SLICE: Duration = Duration::from_millis(100);

/// Returns the addresses of a host and a port; may take as long as it likes.
type Lookup = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The answer to a lookup that is under way.
type Answer = Receiver<io::Result<Vec<SocketAddr>>>;

/// Looks up the addresses of one server. Clones share the lookup that is under way.
#[derive(Clone)]
pub struct Resolver {
    lookup: Lookup,
    under_way: Arc<Mutex<Option<Answer>>>,
}

impl Resolver {
    /// Creates a resolver from a function, for tests.
    pub fn new(lookup: Lookup) -> Self {
        Self {
            lookup,
            under_way: Arc::default(),
        }
    }

    /// Returns the addresses of a host, of which there is at least one.
    ///
    /// # Errors
    /// Returns [`CallError::Away`] if there are none, also not until `deadline`, and
    /// [`CallError::Cut`].
    pub fn addresses(
        &self,
        (host, port): (&str, u16),
        deadline: Instant,
        lifeline: &Lifeline,
    ) -> Result<Vec<SocketAddr>, CallError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let away = |reason: &str| CallError::Away(format!("no address of {host}{reason}"));
        let began = now();
        let mut under_way = self
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let answer = match under_way.take() {
            Some(answer) => answer,
            None => self
                .begin(host, port)
                .map_err(|err| away(&format!(": no thread: {err}")))?,
        };
        loop {
            let left = deadline.saturating_duration_since(now());
            let found = match answer.recv_timeout(left.min(SLICE)) {
                Ok(found) => found,
                Err(RecvTimeoutError::Disconnected) => return Err(away(": its lookup panicked")),
                Err(RecvTimeoutError::Timeout) if lifeline.is_cut() => {
                    *under_way = Some(answer);
                    return Err(CallError::Cut);
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    *under_way = Some(answer);
                    let patience = deadline.saturating_duration_since(began).as_secs_f64();
                    return Err(away(&format!(" within {patience:.1} s")));
                }
                Err(RecvTimeoutError::Timeout) => continue,
            };
            return match found {
                Ok(none) if none.is_empty() => Err(away("")),
                Ok(addresses) => Ok(addresses),
                Err(err) => Err(away(&format!(": {err}"))),
            };
        }
    }

    /// Starts a lookup.
    fn begin(&self, host: &str, port: u16) -> io::Result<Answer> {
        let (tell, answer) = channel();
        let (lookup, host) = (self.lookup, host.to_owned());
        let thread = std::thread::Builder::new().name("resolver".to_owned());
        // Not joined: nothing but its answer is missed if it never ends.
        thread.spawn(move || {
            // Nobody waits any more if the server is no longer used.
            tell.send(lookup(&host, port)).ok();
        })?;
        Ok(answer)
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Resolver")
    }
}

/// How a server's name is looked up makes no difference to which server it is.
impl PartialEq for Resolver {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Resolver {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn hanging(_: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        loop {
            std::thread::park();
        }
    }

    fn within(
        resolver: &Resolver,
        patience: Duration,
        lifeline: &Lifeline,
    ) -> Result<Vec<SocketAddr>, CallError> {
        resolver.addresses(("gpu7", 5555), now() + patience, lifeline)
    }

    #[test]
    fn a_cut_ends_a_lookup() {
        let (resolver, lifeline) = (Resolver::new(hanging), Lifeline::alone());
        let other = lifeline.clone();
        let waiting =
            std::thread::spawn(move || within(&resolver, Duration::from_secs(3600), &other));
        lifeline.cut();
        assert_eq!(waiting.join().unwrap(), Err(CallError::Cut));
    }

    #[test]
    fn attempts_wait_for_the_same_lookup_until_it_has_an_answer() {
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        static MAY_END: Mutex<()> = Mutex::new(());
        let lookup: Lookup = |_, port| {
            LOOKUPS.fetch_add(1, Ordering::SeqCst);
            drop(MAY_END.lock());
            Ok(vec![SocketAddr::from(([10, 0, 0, 7], port))])
        };
        let (resolver, lifeline) = (Resolver::new(lookup), Lifeline::alone());
        let held = MAY_END.lock().unwrap();
        for _ in 0..3 {
            within(&resolver.clone(), Duration::from_millis(20), &lifeline).unwrap_err();
        }
        drop(held);
        let wanted = SocketAddr::from(([10, 0, 0, 7], 5555));
        let found = within(&resolver, Duration::from_secs(3600), &lifeline);
        assert_eq!(found, Ok(vec![wanted]));
        assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_host_without_addresses_is_named_and_an_address_needs_no_lookup() {
        let lifeline = Lifeline::alone();
        let lookups: [(Lookup, &str); 2] = [
            (|_, _| Ok(Vec::new()), "no address of gpu7"),
            (
                |_, _| Err(io::Error::other("no such name")),
                "no address of gpu7: no such name",
            ),
        ];
        for (lookup, reason) in lookups {
            let found = within(&Resolver::new(lookup), Duration::from_secs(3600), &lifeline);
            assert_eq!(found, Err(CallError::Away(reason.to_owned())));
        }
        let own = Resolver::new(hanging).addresses(("::1", 80), now(), &lifeline);
        assert_eq!(own.unwrap()[0].to_string(), "[::1]:80");
    }
}
