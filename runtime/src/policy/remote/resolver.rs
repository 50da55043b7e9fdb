//! Looks up the addresses of a host within a deadline. The system's resolver has none and cannot be
//! interrupted, so it runs in a thread of its own.
//!
//! A lookup that outlives its caller's patience goes on, and the next attempt waits for it. So a
//! resolver that hangs costs one thread, however often the server is tried.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout_at;

use crate::clock::now;
use crate::policy::remote::CallError;

/// Returns the addresses of a host and a port; may take as long as it likes.
type Lookup = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The answer to a lookup that is under way.
type Answer = oneshot::Receiver<io::Result<Vec<SocketAddr>>>;

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
    /// Returns [`CallError::Away`] if there are none, also not until `deadline`.
    pub async fn addresses(
        &self,
        (host, port): (&str, u16),
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, CallError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let began = now();
        let reason = match timeout_at(deadline.into(), self.look_up(host, port)).await {
            Ok(Ok(addresses)) if !addresses.is_empty() => return Ok(addresses),
            Ok(Ok(_)) => String::new(),
            Ok(Err(err)) => format!(": {err}"),
            Err(_) => {
                let patience = deadline.saturating_duration_since(began).as_secs_f64();
                format!(" within {patience:.1} s")
            }
        };
        Err(CallError::Away(format!("no address of {host}{reason}")))
    }

    /// Waits for the lookup that is under way, or for a new one.
    async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let mut under_way = self.under_way.lock().await;
        let answer = match &mut *under_way {
            Some(answer) => answer,
            none => none.insert(self.begin(host, port)?),
        };
        let found = answer.await;
        *under_way = None;
        found.unwrap_or_else(|_| Err(io::Error::other("its lookup panicked")))
    }

    /// Starts a lookup.
    fn begin(&self, host: &str, port: u16) -> io::Result<Answer> {
        let (tell, answer) = oneshot::channel();
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
    use std::time::Duration;

    use super::*;

    fn hanging(_: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        loop {
            std::thread::park();
        }
    }

    async fn within(resolver: &Resolver, patience: Duration) -> Result<Vec<SocketAddr>, String> {
        let found = resolver.addresses(("gpu7", 5555), now() + patience).await;
        found.map_err(|err| match err {
            CallError::Away(reason) => reason,
            other => panic!("{other:?}"),
        })
    }

    #[tokio::test]
    async fn attempts_wait_for_the_same_lookup_until_it_has_an_answer() {
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        static MAY_END: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let lookup: Lookup = |_, port| {
            LOOKUPS.fetch_add(1, Ordering::SeqCst);
            drop(MAY_END.blocking_lock());
            Ok(vec![SocketAddr::from(([10, 0, 0, 7], port))])
        };
        let resolver = Resolver::new(lookup);
        {
            let _held = MAY_END.lock().await;
            for _ in 0..3 {
                within(&resolver.clone(), Duration::from_millis(20))
                    .await
                    .unwrap_err();
            }
        }
        let wanted = SocketAddr::from(([10, 0, 0, 7], 5555));
        let found = within(&resolver, Duration::from_secs(3600)).await;
        assert_eq!(found, Ok(vec![wanted]));
        assert_eq!(LOOKUPS.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_host_without_addresses_is_named_and_an_address_needs_no_lookup() {
        let lookups: [(Lookup, &str); 2] = [
            (|_, _| Ok(Vec::new()), "no address of gpu7"),
            (
                |_, _| Err(io::Error::other("no such name")),
                "no address of gpu7: no such name",
            ),
        ];
        for (lookup, reason) in lookups {
            let found = within(&Resolver::new(lookup), Duration::from_secs(3600)).await;
            assert_eq!(found, Err(reason.to_owned()));
        }
        let own = Resolver::new(hanging).addresses(("::1", 80), now()).await;
        assert_eq!(own.unwrap()[0].to_string(), "[::1]:80");
    }
}
