//! The listening end of the store.

use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::say;
use crate::store::connection::Connection;
use crate::store::error::{StoreError, authority};
use crate::store::hub::Hub;
use crate::store::limits::Limits;
use crate::store::port_owner::PortOwner;
use crate::store::table::Refusal;

/// Connections that wait to be accepted; the kernel lowers it to `net.core.somaxconn`. All ranks of a job come at once.
const BACKLOG: i32 = 4096;

/// Between two tries to accept when there are no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A silent connection is probed after this, so that those to nodes that vanished end.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// Between two probes; the kernel gives up after nine.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// Between two looks whether a silent client can make room, when all places are taken.
const LOOK: Duration = Duration::from_millis(500);

/// Tries to find a port that is free on both loopback addresses: somebody may have taken the other one.
const LOOPBACK_TRIES: u32 = 16;

/// A store that has its port and waits to be served.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<StdListener>,
    port: u16,
    limits: Limits,
}

/// Who can reach a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Processes of this machine: it listens on 127.0.0.1 and ::1.
    Machine,
    /// Everybody: it listens on all addresses, IPv6 and IPv4, as torch does.
    Everybody,
}

impl Scope {
    /// That of a store which all ranks reach under this name: one that leads to no other machine needs no more.
    pub fn of(host: &str) -> Scope {
        if ["localhost", "127.0.0.1", "::1"].contains(&host) { Scope::Machine } else { Scope::Everybody }
    }
}

impl Server {
    /// Takes the port, any free one if `None` or 0. `host` is the name under which ranks reach it: it decides where the
    /// store listens. Clients can connect from now on and are answered after [`Server::spawn`].
    pub fn bind(host: &str, port: Option<u16>) -> Result<Server, StoreError> {
        Server::bind_in(Scope::of(host), host, port)
    }

    /// The same where some know the store under other names than `host`, which only serves messages then.
    pub fn bind_in(scope: Scope, host: &str, port: Option<u16>) -> Result<Server, StoreError> {
        let port = port.unwrap_or(0);
        let addr = || authority(host, port);
        let listening = match scope {
            Scope::Machine => listen_on_loopback(port),
            Scope::Everybody => listen(port).map(|listener| vec![listener]),
        };
        let listeners = listening.map_err(|err| match err.kind() {
            ErrorKind::AddrInUse => StoreError::PortInUse { addr: addr(), owner: PortOwner::of(port) },
            _ => StoreError::Listen { addr: addr(), err },
        })?;
        let port = listeners[0].local_addr().map_err(|err| StoreError::Listen { addr: addr(), err })?.port();
        Ok(Server { listeners, port, limits: Limits::of_process() })
    }

    /// Other limits than those of this process.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Server {
        Server { limits, ..self }
    }

    /// The port taken.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves an empty store on the current tokio runtime, which needs its I/O and time drivers, until the handle is
    /// dropped. Must be called on a runtime.
    pub fn spawn(self) -> ServerHandle {
        let listeners = Arc::new(self.listeners);
        let (hub, task) = start(&listeners, self.limits);
        ServerHandle { listeners, port: self.port, limits: self.limits, hub, task }
    }
}

/// A store that is served. Dropping it frees the port at once and closes all connections.
#[derive(Debug)]
pub struct ServerHandle {
    listeners: Arc<Vec<StdListener>>,
    port: u16,
    limits: Limits,
    hub: Hub,
    task: AbortHandle,
}

impl ServerHandle {
    /// The port taken.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stores a value as a client would, waking those who wait for it. The key is the one on the wire: torch's clients
    /// put a `/` before theirs.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Refusal> {
        self.hub.set(key.as_bytes(), value)
    }

    /// Begins anew: closes all connections and serves an empty store on the same port, which is not let go in between.
    pub fn renew(&mut self) {
        self.task.abort();
        (self.hub, self.task) = start(&self.listeners, self.limits);
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.task.abort();
        // The task lets go of the listener when the runtime next runs; a shut one does not hold the port until then.
        for listener in self.listeners.iter() {
            if let Err(err) = SockRef::from(listener).shutdown(std::net::Shutdown::Both) {
                tracing::debug!("cannot shut the store's listener: {err}");
            }
        }
    }
}

/// Dual-stack, or IPv4 where the system has no IPv6. Never IPv4 because the IPv6 port is taken: `localhost` would then
/// lead to a stranger.
fn listen(port: u16) -> io::Result<StdListener> {
    match listen_on(IpAddr::from(Ipv6Addr::UNSPECIFIED), port) {
        Err(err) if !matches!(err.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied) => {
            tracing::debug!("the store has no IPv6: {err}");
            listen_on(IpAddr::from(Ipv4Addr::UNSPECIFIED), port)
        }
        done => done,
    }
}

/// On 127.0.0.1, and on ::1 where the system has it, as `localhost` may mean either: never on one alone because the other
/// is taken.
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
        // `::1` alone leaves 127.0.0.1 to its own listener.
        socket.set_only_v6(!ip.is_unspecified())?;
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn start(listeners: &Arc<Vec<StdListener>>, limits: Limits) -> (Hub, AbortHandle) {
    let hub = Hub::new(limits);
    let task = tokio::spawn(serve(Arc::clone(listeners), hub.clone(), limits)).abort_handle();
    (hub, task)
}

/// Accepts until aborted. The connections live in this task and end with it.
async fn serve(listeners: Arc<Vec<StdListener>>, hub: Hub, limits: Limits) {
    let first = register(&listeners[0]).await;
    let second = match listeners.get(1) {
        Some(listener) => Some(register(listener).await),
        None => None,
    };
    let mut connections = JoinSet::new();
    let mut is_told = false;
    loop {
        let is_full = connections.len() >= limits.clients;
        if is_full && !is_told {
            say::warning(format_args!(
                "the store has {} clients, no more than that fit the limit of open files (`ulimit -n`); those that ask \
                 for nothing make room for others",
                limits.clients
            ));
            is_told = true;
        }
        if is_full {
            hub.evict_silent();
        }
        let accepted = tokio::select! {
            accepted = first.accept(), if !is_full => accepted,
            accepted = accept(second.as_ref()), if !is_full => accepted,
            Some(_) = connections.join_next() => continue,
            () = tokio::time::sleep(LOOK), if is_full => continue,
        };
        match accepted {
            Ok((stream, peer)) => drop(connections.spawn(attend(stream, peer, hub.clone()))),
            Err(err) => pause(&err).await,
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => pending().await,
    }
}

/// Hands the listener to the runtime.
async fn register(listener: &StdListener) -> TcpListener {
    loop {
        match listener.try_clone().and_then(TcpListener::from_std) {
            Ok(listener) => return listener,
            Err(err) => pause(&err).await,
        }
    }
}

/// After a peer that gave up while it was waiting there is nothing to pause for; all else is a lack of resources.
async fn pause(err: &io::Error) {
    tracing::warn!("the store cannot accept a connection: {err}");
    if err.kind() != ErrorKind::ConnectionAborted {
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

async fn attend(stream: TcpStream, peer: SocketAddr, hub: Hub) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    let options = stream.set_nodelay(true).and_then(|()| SockRef::from(&stream).set_tcp_keepalive(&keepalive));
    if let Err(err) = options {
        tracing::debug!("the store cannot tune the connection of {peer}: {err}");
    }
    if let Err(ended) = Connection::new(stream, hub.enter()).serve().await {
        tracing::warn!("the store closed the connection of {peer}: {ended}");
    }
}

#[cfg(test)]
mod tests;
