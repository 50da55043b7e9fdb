//! The stores of a launch: the endpoint of that of the rendezvous, which this node may host, and
//! the store in which the ranks of a round meet, renewed for every round.
//!
//! A restarted rank must not find the keys of its dead predecessor: a fast rank would use them to
//! connect to a peer that is gone (pytorch/pytorch#135712). When the store is renewed all ranks
//! have ended, so an empty store on the same port is safe.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jobs::host::is_loopback;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep, timeout};

use crate::plan::{RendezvousPlan, StorePlan};
use crate::say;
use tcpstore::{PortOwner, Scope, ServerHandle, StoreClient, StoreError, StoreServer, authority};

/// Pause between two attempts to listen on a port that nobody listens on, and is refused.
const AGAIN: Duration = Duration::from_millis(100);

/// Interval between two reads of a file that does not lead to a store yet.
const LOOK: Duration = Duration::from_millis(20);

/// Timeout for connecting to a host that has just been heard, or is said to host, and time in which
/// [`StoreEndpoint::find`] tries again to host.
pub const ONE_HOST: Duration = Duration::from_secs(2);

/// The host itself connects over loopback, without name resolution.
const LOOPBACK: &str = "127.0.0.1";

/// A store endpoint.
#[derive(Debug)]
pub struct StoreEndpoint {
    /// The store, if this node hosts it.
    pub server: Option<ServerHandle>,
    /// The host under which other nodes find it.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The file lock that shows that the host lives, with `store_type=file`.
    _lock: Option<File>,
}

impl StoreEndpoint {
    /// Hosts a store at this endpoint. It listens on all addresses: nodes on other machines may
    /// know this one under other names.
    pub fn hosted(host: &str, port: u16) -> Result<StoreEndpoint, StoreError> {
        let server = StoreServer::bind_in(Scope::Everybody, host, Some(port))?
            .warning(|text| say::warning(text))
            .spawn();
        Ok(StoreEndpoint::of_server(server, host))
    }

    /// Returns the endpoint of a store that this node hosts already.
    pub fn of_server(server: ServerHandle, host: &str) -> StoreEndpoint {
        StoreEndpoint {
            port: server.port(),
            server: Some(server),
            host: host.to_owned(),
            _lock: None,
        }
    }

    /// Returns `host:port`, for messages.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    /// Returns an endpoint that another node hosts.
    pub fn elsewhere(host: &str, port: u16) -> StoreEndpoint {
        StoreEndpoint {
            server: None,
            host: host.to_owned(),
            port,
            _lock: None,
        }
    }

    /// Finds the store of an elastic launch, and hosts it if that is this node's task. If this node
    /// only guessed from the name of the endpoint that it should host, and the port is taken,
    /// another agent of this machine was faster. If nobody listens there, it tries again for
    /// [`ONE_HOST`].
    pub async fn find(plan: &RendezvousPlan) -> anyhow::Result<StoreEndpoint> {
        if let Some(path) = &plan.file {
            return StoreEndpoint::by_file(path, plan).await;
        }
        let hosts = match plan.hosts {
            Some(hosts) => hosts,
            None => is_here(&plan.host).await,
        };
        if !hosts {
            return Ok(StoreEndpoint::elsewhere(&plan.host, plan.port));
        }
        let until = Instant::now() + ONE_HOST;
        loop {
            match StoreEndpoint::hosted(&plan.host, plan.port) {
                Err(StoreError::PortInUse { .. }) if plan.hosts.is_none() => {}
                store_endpoint => return Ok(store_endpoint.map_err(StoreError::with_owner)?),
            }
            // Linux may refuse both of two that begin to listen at the same time. Nobody would
            // host. One that hosts listens on all addresses, so the name need not be resolved.
            let others = timeout(ONE_HOST, TcpStream::connect((LOOPBACK, plan.port))).await;
            let nobody_listens =
                matches!(others, Ok(Err(err)) if err.kind() == ErrorKind::ConnectionRefused);
            if !nobody_listens || Instant::now() >= until {
                return Ok(StoreEndpoint::elsewhere(&plan.host, plan.port));
            }
            sleep(AGAIN).await;
        }
    }

    /// Finds the store with `store_type=file`: the agent that locks the file hosts the store and
    /// writes its address into the file. Torch keeps the whole state in the file instead and polls
    /// it. The file may still have the address of the launch before, so it is read again until a
    /// store answers there.
    async fn by_file(path: &Path, plan: &RendezvousPlan) -> anyhow::Result<StoreEndpoint> {
        let unusable = || format!("cannot meet by the file `{}`", path.display());
        let deadline = Instant::now() + plan.read_timeout;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        loop {
            // NFS shows what others have written to those who open the file after that.
            let mut file = options.open(path).with_context(unusable)?;
            match file.try_lock() {
                Ok(()) => return StoreEndpoint::hosted_by_file(file, plan).with_context(unusable),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(err)) => return Err(err).with_context(unusable),
            }
            let mut text = String::new();
            file.read_to_string(&mut text).with_context(unusable)?;
            let err = match written(&text) {
                Some(endpoint) => match endpoint.connect(ONE_HOST, plan.read_timeout).await {
                    Ok(_) => return Ok(endpoint),
                    Err(err) => err.into(),
                },
                None => anyhow!("the node that locked it does not write where the store is"),
            };
            if Instant::now() >= deadline {
                return Err(err).with_context(unusable);
            }
            sleep(LOOK).await;
        }
    }

    /// Hosts a store, and writes its address into the file that this node has locked.
    fn hosted_by_file(mut file: File, plan: &RendezvousPlan) -> anyhow::Result<StoreEndpoint> {
        file.set_len(0)?;
        let host = plan.local_addr.clone().unwrap_or_else(jobs::host::name);
        let endpoint = StoreEndpoint::hosted(&host, 0)?;
        writeln!(file, "{}", endpoint.authority())?;
        Ok(StoreEndpoint {
            _lock: Some(file),
            ..endpoint
        })
    }

    /// Connects to the store. `patience` limits the attempts to connect, `request_timeout` each
    /// request.
    pub async fn connect(
        &self,
        patience: Duration,
        request_timeout: Duration,
    ) -> Result<StoreClient, StoreError> {
        let host = if self.server.is_some() {
            LOOPBACK
        } else {
            &self.host
        };
        StoreClient::connect_within(host, self.port, patience, request_timeout).await
    }

    /// Returns the address under which other nodes reach this one.
    pub async fn address(&self, client: &StoreClient) -> String {
        match self.server {
            Some(_) => address_of_host(&self.host).await,
            None => address_of_client(client),
        }
    }
}

/// Returns whether the host of an endpoint means this node: `localhost`, its host name, or one of
/// its addresses.
async fn is_here(host: &str) -> bool {
    host == "localhost" || host == jobs::host::name() || own_address(host).await.is_some()
}

/// Returns the first address of this name that belongs to this node.
async fn own_address(host: &str) -> Option<IpAddr> {
    lookup_host((host, 0))
        .await
        .ok()?
        .map(|addr| addr.ip())
        .find(|ip| is_own(*ip))
}

/// Returns whether an address belongs to this node: only such an address can be bound.
fn is_own(ip: IpAddr) -> bool {
    !ip.is_unspecified() && UdpSocket::bind((ip, 0)).is_ok()
}

/// Returns the address under which other nodes reach this one, if it hosts the store at `host`.
/// They found it by that name, so the name itself is returned if it only resolves to the loopback
/// address here.
async fn address_of_host(host: &str) -> String {
    match own_address(host).await {
        Some(ip) if !ip.is_loopback() => ip.to_canonical().to_string(),
        _ if is_loopback(host) => LOOPBACK.to_owned(),
        _ => host.to_owned(),
    }
}

/// Returns the address under which other nodes reach this one: the local address of its connection
/// to the store. Torch uses the host name instead, which may not resolve or may lead to another
/// network (pytorch/pytorch#150532).
fn address_of_client(client: &StoreClient) -> String {
    match client.local_ip().map(|ip| ip.to_canonical()) {
        Some(ip) if !ip.is_loopback() => ip.to_string(),
        _ => LOOPBACK.to_owned(),
    }
}

/// Reads the address that the host has written into its file; `None` if it has not yet.
fn written(text: &str) -> Option<StoreEndpoint> {
    let (host, port) = text.strip_suffix('\n')?.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']);
    Some(StoreEndpoint::elsewhere(host, port.parse().ok()?))
}

/// The store in which the ranks meet.
#[derive(Debug)]
pub enum AgentStore {
    /// The launcher hosts the store, until this is dropped.
    Hosted(ServerHandle),
    /// Rank 0 hosts the store (`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`).
    ByRank0 {
        /// A port that was free a moment ago.
        port: u16,
    },
}

impl AgentStore {
    /// Hosts the store, or leaves that to rank 0.
    pub fn open(plan: &StorePlan) -> Result<AgentStore, StoreError> {
        if !plan.is_shared
            && let Ok(port) = plan.port.map_or_else(free_port, Ok)
        {
            return Ok(AgentStore::ByRank0 { port });
        }
        match AgentStore::host(plan, plan.port) {
            Err(StoreError::PortInUse { port, .. }) if plan.may_move => {
                AgentStore::host_elsewhere(plan, port)
            }
            hosted => hosted.map_err(StoreError::with_owner),
        }
    }

    /// Hosts the store on a free port because the usual one is taken, and reports that: a script
    /// may have the usual port hard-coded.
    fn host_elsewhere(plan: &StorePlan, usual: u16) -> Result<AgentStore, StoreError> {
        let store = AgentStore::host(plan, None)?;
        let (by, port) = (PortOwner::text(usual), store.port());
        say::warning(format_args!(
            "port {usual} is in use{by}: the ranks meet at port {port} (MASTER_PORT); a script that has {usual} in its text would \
             meet others there"
        ));
        Ok(store)
    }

    /// Replaces the store by an empty one for the next attempt, on the same port if the launcher
    /// hosts it. That port stays bound meanwhile, so that nobody else can take it.
    pub fn renew(&mut self, plan: &StorePlan) -> Result<(), StoreError> {
        match self {
            AgentStore::Hosted(store) => store.renew(),
            AgentStore::ByRank0 { .. } => *self = AgentStore::open(plan)?,
        }
        Ok(())
    }

    fn host(plan: &StorePlan, port: Option<u16>) -> Result<AgentStore, StoreError> {
        let server = StoreServer::bind(&plan.master_addr, port)?.warning(|text| say::warning(text));
        Ok(AgentStore::Hosted(server.spawn()))
    }

    /// Returns the port of the store, `MASTER_PORT`.
    pub fn port(&self) -> u16 {
        match self {
            AgentStore::Hosted(store) => store.port(),
            AgentStore::ByRank0 { port } => *port,
        }
    }

    /// Returns whether the launcher hosts the store.
    pub fn is_hosted(&self) -> bool {
        matches!(self, AgentStore::Hosted(_))
    }
}

fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use socket2::{Domain, Socket, Type};

    use super::*;
    use crate::plan::Backend;

    #[tokio::test]
    async fn loopback_addresses_and_names_are_here() {
        assert!(is_here("localhost").await && is_here("127.0.0.3").await);
        assert!(
            !is_here("192.0.2.1").await,
            "192.0.2.0/24 is for documentation"
        );
    }

    #[tokio::test]
    async fn a_host_on_loopback_is_found_on_loopback() {
        assert_eq!(address_of_host("127.0.0.2").await, "127.0.0.1");
        assert_eq!(address_of_host("localhost").await, "127.0.0.1");
        assert_eq!(address_of_host("192.0.2.1").await, "192.0.2.1");
    }

    #[tokio::test]
    async fn a_port_that_is_taken_without_a_listener_is_hosted_once_it_is_free() {
        let holder = Socket::new(Domain::IPV6, Type::STREAM, None).expect("a socket");
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        holder.bind(&any.into()).expect("a port");
        let held = holder.local_addr().expect("it has one").as_socket();
        let plan = RendezvousPlan {
            backend: Backend::C10d,
            host: "127.0.0.1".to_owned(),
            port: held.expect("an address").port(),
            ..RendezvousPlan::default()
        };
        let frees = async {
            sleep(3 * LOOK).await;
            drop(holder);
        };
        let (found, ()) = tokio::join!(StoreEndpoint::find(&plan), frees);
        assert!(found.expect("a store").server.is_some(), "nobody hosts it");
    }

    /// Returns the plan of a node that meets others by this file.
    fn by_file(path: &Path) -> RendezvousPlan {
        RendezvousPlan {
            backend: Backend::C10d,
            file: Some(path.to_path_buf()),
            local_addr: Some("127.0.0.1".to_owned()),
            read_timeout: Duration::from_secs(20),
            ..RendezvousPlan::default()
        }
    }

    #[tokio::test]
    async fn the_address_that_the_launch_before_has_left_in_the_file_is_not_held_on_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("meeting");
        let stranger = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let left = stranger.local_addr().expect("it has one");
        std::fs::write(&path, format!("{left}\n")).expect("written");
        let host = File::options()
            .write(true)
            .open(&path)
            .expect("it is there");
        host.try_lock().expect("nobody else has it");
        let plan = by_file(&path);
        let joins = async {
            let endpoint = StoreEndpoint::find(&plan).await?;
            let mut client = endpoint
                .connect(plan.read_timeout, plan.read_timeout)
                .await?;
            anyhow::Ok(client.add("n", 1).await?)
        };
        let hosts = async {
            // Whoever comes has read the old address.
            drop(stranger.accept().await);
            drop(stranger);
            let store = StoreServer::bind("127.0.0.1", None)
                .expect("a port")
                .spawn();
            host.set_len(0).expect("emptied");
            let line = format!("127.0.0.1:{}\n", store.port());
            (&host).write_all(line.as_bytes()).expect("written");
            store
        };
        let (joined, _store) = tokio::join!(joins, hosts);
        assert_eq!(joined.map_err(|err| err.to_string()), Ok(1));
    }

    #[tokio::test]
    async fn a_node_hosts_in_place_of_one_that_has_locked_the_file_and_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("meeting");
        let host = File::create(&path).expect("a file");
        host.try_lock().expect("nobody else has it");
        let plan = by_file(&path);
        let ends = async {
            tokio::task::yield_now().await;
            drop(host);
        };
        let (found, ()) = tokio::join!(StoreEndpoint::find(&plan), ends);
        assert!(found.expect("an endpoint").server.is_some());
    }

    fn at(port: u16, may_move: bool) -> Result<AgentStore, StoreError> {
        AgentStore::open(&StorePlan {
            master_addr: "127.0.0.1".to_owned(),
            port: Some(port),
            may_move,
            is_shared: true,
        })
    }

    #[tokio::test]
    async fn the_usual_port_is_left_to_who_has_it_and_one_that_was_asked_for_is_refused() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_ne!(at(port, true).unwrap().port(), port);
        assert!(matches!(at(port, false), Err(StoreError::PortInUse { .. })));
    }

    #[tokio::test]
    async fn while_the_store_is_renewed_nobody_can_take_its_port() {
        let plan = StorePlan {
            master_addr: "127.0.0.1".to_owned(),
            port: None,
            may_move: false,
            is_shared: true,
        };
        let mut store = AgentStore::open(&plan).unwrap();
        let port = store.port();
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let thief = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let taken = TcpListener::bind(("127.0.0.1", port));
                assert!(taken.is_err(), "the port was free");
            }
        });
        for _ in 0..200 {
            store.renew(&plan).unwrap();
            tokio::task::yield_now().await;
        }
        is_over.store(true, Ordering::Relaxed);
        thief.join().unwrap();
        assert_eq!(store.port(), port);
    }
}
