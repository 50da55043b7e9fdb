//! The listening side of the store: binds the port and accepts connections.

use std::collections::VecDeque;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::connect::authority;
use crate::connection::{Hub, StoreConnection};
use crate::error::{StoreError, StoreRefusal};
use crate::limits::{StoreLimits, StoreValue};
use crate::wire::{StoreRequest, wire_key};

/// Length of the accept queue, because all ranks of a job connect at once. The kernel caps it at
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Pause after `accept` fails for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Time of silence after which TCP keepalive probes a connection, so that connections to vanished
/// nodes end.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// Interval between two keepalive probes; the kernel gives up after nine.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// Interval between two searches for a silent client to evict when all slots are taken.
const LOOK: Duration = Duration::from_millis(500);

/// Attempts to find a port that is free on both loopback addresses; another process may have taken
/// it on one of them.
const LOOPBACK_TRIES: u32 = 16;

/// A store that listens on its port but does not answer yet.
#[derive(Debug)]
pub struct StoreServer {
    listeners: Arc<Vec<StdListener>>,
    port: u16,
    limits: StoreLimits,
    warn: fn(&str),
}

/// The machines from which a store can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Only this machine: the store listens on 127.0.0.1 and ::1.
    Machine,
    /// All machines: the store listens on all addresses, IPv6 and IPv4, as torch does.
    Everybody,
}

impl Scope {
    /// Returns the scope of a store that all ranks reach under this name: [`Scope::Machine`] if it
    /// leads to where such a store listens, which other addresses of loopback do not.
    pub fn of(host: &str) -> Scope {
        if ["localhost", "127.0.0.1", "::1"].contains(&host) {
            Scope::Machine
        } else {
            Scope::Everybody
        }
    }
}

impl StoreServer {
    /// Binds `port`, or any free port if it is `None` or 0. `host` is the name under which ranks
    /// reach the store; it decides on which addresses the store listens. Clients can connect from
    /// now on, and are answered after [`StoreServer::spawn`].
    pub fn bind(host: &str, port: Option<u16>) -> Result<StoreServer, StoreError> {
        StoreServer::bind_in(Scope::of(host), host, port)
    }

    /// Binds as [`StoreServer::bind`] does, with an explicit scope for clients that know the store
    /// under other names. `host` then only appears in messages.
    pub fn bind_in(scope: Scope, host: &str, port: Option<u16>) -> Result<StoreServer, StoreError> {
        let port = port.unwrap_or(0);
        let addr = || authority(host, port);
        let listening = match scope {
            Scope::Machine => listen_on_loopback(port),
            Scope::Everybody => listen(port).map(|listener| vec![listener]),
        };
        let no_listener =
            |err| StoreError::Other(format!("cannot host the store at {}: {err}", addr()));
        let listeners = listening.map_err(|err| match err.kind() {
            ErrorKind::AddrInUse => StoreError::PortInUse {
                addr: addr(),
                port,
                by: String::new(),
            },
            _ => no_listener(err),
        })?;
        let port = listeners[0].local_addr().map_err(no_listener)?.port();
        Ok(StoreServer {
            listeners: Arc::new(listeners),
            port,
            limits: StoreLimits::of_process(),
            warn: |text| tracing::warn!("{text}"),
        })
    }

    /// Has warnings for the user said by `warn`.
    #[must_use]
    pub fn warning(self, warn: fn(&str)) -> StoreServer {
        StoreServer { warn, ..self }
    }

    /// Replaces the limits of this process by others.
    #[must_use]
    pub fn with_limits(self, limits: StoreLimits) -> StoreServer {
        StoreServer { limits, ..self }
    }

    /// Returns the port that was bound.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves an empty store until the handle is dropped. Must be called on a tokio runtime with
    /// I/O and time drivers.
    pub fn spawn(self) -> ServerHandle {
        let (hub, task) = self.start();
        ServerHandle {
            server: self,
            hub,
            task,
        }
    }

    fn start(&self) -> (Hub, AbortHandle) {
        let hub = Hub::new(self.limits);
        let listeners = Arc::clone(&self.listeners);
        let task = tokio::spawn(serve(listeners, hub.clone(), self.limits, self.warn));
        (hub, task.abort_handle())
    }
}

/// A store that is being served. Dropping it frees the port at once and closes all connections.
#[derive(Debug)]
pub struct ServerHandle {
    server: StoreServer,
    hub: Hub,
    task: AbortHandle,
}

impl ServerHandle {
    /// Returns the port that was bound.
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// Stores a value as a client would, and wakes the clients that wait for it.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), StoreRefusal> {
        let key = &wire_key(key);
        self.answer(&StoreRequest::Set { key, value })
    }

    /// Counts a client that does not come, as those do that connect to a store for a known number
    /// of workers.
    pub fn count_in(&self) -> Result<(), StoreRefusal> {
        let (key, value) = (StoreRequest::COUNT, b"1");
        self.answer(&StoreRequest::Set { key, value })
    }

    fn answer(&self, request: &StoreRequest<'_>) -> Result<(), StoreRefusal> {
        self.hub.table().answer(request).map(drop)
    }

    /// Takes the first value of a queue, if there is one.
    pub fn pop(&self, key: &str) -> Option<StoreValue> {
        self.hub.table().pop(&wire_key(key)).map(|(_, value)| value)
    }

    /// Starts over: closes all connections and serves an empty store on the same port, which stays
    /// bound in between.
    pub fn renew(&mut self) {
        self.task.abort();
        (self.hub, self.task) = self.server.start();
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.task.abort();
        // The task drops the listener only when the runtime runs next; shutting it down frees the
        // port now.
        for listener in self.server.listeners.iter() {
            if let Err(err) = SockRef::from(listener).shutdown(std::net::Shutdown::Both) {
                tracing::debug!("cannot shut the store's listener: {err}");
            }
        }
    }
}

/// Listens on IPv6 and IPv4, or on IPv4 alone if the system has no IPv6. It never falls back to
/// IPv4 because the IPv6 port is taken: `localhost` would then lead to another process.
fn listen(port: u16) -> io::Result<StdListener> {
    match listen_on(IpAddr::from(Ipv6Addr::UNSPECIFIED), port) {
        Err(err)
            if !matches!(
                err.kind(),
                ErrorKind::AddrInUse | ErrorKind::PermissionDenied
            ) =>
        {
            tracing::debug!("the store has no IPv6: {err}");
            listen_on(IpAddr::from(Ipv4Addr::UNSPECIFIED), port)
        }
        done => done,
    }
}

/// Listens on 127.0.0.1, and on ::1 if the system has it, because `localhost` may mean either. It
/// never listens on one alone because the port is taken on the other.
fn listen_on_loopback(port: u16) -> io::Result<Vec<StdListener>> {
    let mut tries = 0;
    loop {
        tries += 1;
        let listener = listen_on(Ipv4Addr::LOCALHOST.into(), port)?;
        let taken = listener.local_addr()?.port();
        match listen_on(Ipv6Addr::LOCALHOST.into(), taken) {
            Ok(other) => return Ok(vec![listener, other]),
            Err(err) if err.kind() != ErrorKind::AddrInUse => {
                tracing::debug!("the store has no IPv6: {err}");
                return Ok(vec![listener]);
            }
            Err(_) if port == 0 && tries < LOOPBACK_TRIES => {}
            Err(err) => return Err(err),
        }
    }
}

fn listen_on(ip: IpAddr, port: u16) -> io::Result<StdListener> {
    let addr = SocketAddr::new(ip, port);
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // connections of the job before may linger on the port
    if ip.is_ipv6() {
        // `::1` leaves 127.0.0.1 to a listener of its own.
        socket.set_only_v6(!ip.is_unspecified())?;
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Accepts connections until the task is aborted. The connections live in this task and end with
/// it.
async fn serve(listeners: Arc<Vec<StdListener>>, hub: Hub, limits: StoreLimits, warn: fn(&str)) {
    let first = register(&listeners[0]).await;
    let second = match listeners.get(1) {
        Some(listener) => Some(register(listener).await),
        None => None,
    };
    let mut connections = JoinSet::new();
    let mut silent = Silent::default();
    let mut is_told = false;
    loop {
        let is_full = connections.len() >= limits.clients;
        if is_full && !is_told {
            warn(&format!(
                "the store has {} clients, the most that the limit of open files allows (`ulimit \
                 -n`); idle ones are closed for others",
                limits.clients
            ));
            is_told = true;
        }
        if is_full {
            silent.evict(limits.grace, limits.clients / 8 + 1);
        }
        let accepted = tokio::select! {
            accepted = first.accept(), if !is_full => accepted,
            accepted = accept(second.as_ref()), if !is_full => accepted,
            Some(_) = connections.join_next() => continue,
            () = tokio::time::sleep(LOOK), if is_full => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                let has_asked = Arc::new(AtomicBool::new(false));
                let client = attend(stream, peer, hub.clone(), Arc::clone(&has_asked));
                let task = connections.spawn(client);
                silent.add(has_asked, task, peer, connections.len());
            }
            Err(err) => pause(&err).await,
        }
    }
}

/// The clients that have made no request yet, the oldest first. A store cannot tell a rank from
/// another client, but ranks make requests as soon as they connect.
#[derive(Debug, Default)]
struct Silent(VecDeque<(Instant, Arc<AtomicBool>, AbortHandle, SocketAddr)>);

impl Silent {
    /// Adds one of `all` clients.
    fn add(&mut self, has_asked: Arc<AtomicBool>, task: AbortHandle, peer: SocketAddr, all: usize) {
        if self.0.len() > 2 * all {
            self.forget_others();
        }
        self.0.push_back((Instant::now(), has_asked, task, peer));
    }

    /// Closes the connections of those that came before `grace`, at most so many.
    fn evict(&mut self, grace: Duration, most: usize) {
        self.forget_others();
        let are_late = |since: &Instant| since.elapsed() >= grace;
        let late = self.0.iter().take_while(|(since, ..)| are_late(since));
        for (.., task, peer) in late.take(most) {
            tracing::warn!(
                "the store closed the connection of {peer}: it was silent, and other clients need \
                 its place"
            );
            task.abort();
        }
    }

    fn forget_others(&mut self) {
        let is_silent = |has_asked: &AtomicBool| !has_asked.load(Ordering::Relaxed);
        self.0
            .retain(|(_, has_asked, task, _)| is_silent(has_asked) && !task.is_finished());
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => pending().await,
    }
}

/// Registers the listener with the runtime.
async fn register(listener: &StdListener) -> TcpListener {
    loop {
        match listener.try_clone().and_then(TcpListener::from_std) {
            Ok(listener) => return listener,
            Err(err) => pause(&err).await,
        }
    }
}

/// Pauses after a failed `accept`, unless the peer gave up while it was queued: all other errors
/// are a lack of resources.
async fn pause(err: &io::Error) {
    tracing::warn!("the store cannot accept a connection: {err}");
    if err.kind() != ErrorKind::ConnectionAborted {
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

async fn attend(stream: TcpStream, peer: SocketAddr, hub: Hub, has_asked: Arc<AtomicBool>) {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY);
    let options = stream
        .set_nodelay(true)
        .and_then(|()| SockRef::from(&stream).set_tcp_keepalive(&keepalive));
    if let Err(err) = options {
        tracing::debug!("the store cannot tune the connection of {peer}: {err}");
    }
    if let Err(ended) = StoreConnection::new(stream, hub, has_asked).serve().await {
        tracing::warn!("the store closed the connection of {peer}: {ended}");
    }
}

#[cfg(test)]
pub(crate) mod tests;
