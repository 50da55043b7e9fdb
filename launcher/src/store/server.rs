//! The listening end of the store.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::process::files::FileLimit;
use crate::say;
use crate::store::connection::Connection;
use crate::store::error::{StoreError, authority};
use crate::store::hub::Hub;
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

/// File descriptors that clients leave to the rest of the launcher: pipes, logs, pidfds.
const LEFT_OVER: usize = 256;

/// File descriptors a process may have, where the system does not say.
const USUAL_FILES: usize = 1024;

/// A store that has its port and waits to be served.
#[derive(Debug)]
pub struct Server {
    listener: StdListener,
    port: u16,
}

impl Server {
    /// Takes the port on all interfaces, IPv6 and IPv4, as torch does; any free port if `None` or 0. `host` is the name
    /// under which ranks reach it and only serves messages. Clients can connect from now on and are answered after
    /// [`Server::spawn`].
    pub fn bind(host: &str, port: Option<u16>) -> Result<Server, StoreError> {
        let port = port.unwrap_or(0);
        let addr = || authority(host, port);
        let listener = listen(port).map_err(|err| match err.kind() {
            ErrorKind::AddrInUse => StoreError::PortInUse { addr: addr(), owner: PortOwner::of(port) },
            _ => StoreError::Listen { addr: addr(), err },
        })?;
        let port = listener.local_addr().map_err(|err| StoreError::Listen { addr: addr(), err })?.port();
        Ok(Server { listener, port })
    }

    /// The port taken.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Serves an empty store on the current tokio runtime, which needs its I/O and time drivers, until the handle is
    /// dropped. Must be called on a runtime.
    pub fn spawn(self) -> ServerHandle {
        let listener = Arc::new(self.listener);
        let (hub, task) = start(&listener);
        ServerHandle { listener, port: self.port, hub, task }
    }
}

/// A store that is served. Dropping it frees the port at once and closes all connections.
#[derive(Debug)]
pub struct ServerHandle {
    listener: Arc<StdListener>,
    port: u16,
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
        (self.hub, self.task) = start(&self.listener);
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.task.abort();
        // The task lets go of the listener when the runtime next runs; a shut one does not hold the port until then.
        if let Err(err) = SockRef::from(&*self.listener).shutdown(std::net::Shutdown::Both) {
            tracing::debug!("cannot shut the store's listener: {err}");
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

fn listen_on(ip: IpAddr, port: u16) -> io::Result<StdListener> {
    let addr = SocketAddr::new(ip, port);
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // connections of the job before may linger on the port
    if ip.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn start(listener: &Arc<StdListener>) -> (Hub, AbortHandle) {
    let hub = Hub::default();
    let task = tokio::spawn(serve(Arc::clone(listener), hub.clone())).abort_handle();
    (hub, task)
}

/// Accepts until aborted. The connections live in this task and end with it.
async fn serve(listener: Arc<StdListener>, hub: Hub) {
    let listener = register(&listener).await;
    let most = max_clients();
    let mut connections = JoinSet::new();
    let mut is_told = false;
    loop {
        if connections.len() == most && !is_told {
            say::warning(format_args!(
                "the store has {most} clients, no more than that fit the limit of open files (`ulimit -n`)"
            ));
            is_told = true;
        }
        tokio::select! {
            accepted = listener.accept(), if connections.len() < most => match accepted {
                Ok((stream, peer)) => drop(connections.spawn(attend(stream, peer, hub.clone()))),
                Err(err) => pause(&err).await,
            },
            Some(_) = connections.join_next() => {}
        }
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

/// Clients beyond this wait to be accepted, so that a flood of them cannot keep the launcher from opening files.
fn max_clients() -> usize {
    let soft = FileLimit::current().map(|limit| usize::try_from(limit.soft).unwrap_or(usize::MAX));
    let files = soft.unwrap_or(USUAL_FILES);
    files.saturating_sub(LEFT_OVER).max(files / 2).max(1)
}

#[cfg(test)]
mod tests;
