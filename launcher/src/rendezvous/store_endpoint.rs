//! The endpoint of the rendezvous store: its address, and whether this node hosts it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::plan::rendezvous::RendezvousPlan;
use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::reach;
use crate::say;
use tcpstore::{Scope, ServerHandle, StoreClient, StoreError, StoreServer};

/// Interval between two reads of a file into which the host has not written yet.
const LOOK: Duration = Duration::from_millis(20);

/// The host itself connects over loopback, without name resolution.
const LOOPBACK: &str = "127.0.0.1";

/// A store endpoint.
#[derive(Debug)]
pub struct StoreEndpoint {
    /// The store, if this node hosts it.
    pub server: Option<ServerHandle>,
    /// The host under which other nodes find it.
    pub host: String,
    port: u16,
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
        let port = server.port();
        Ok(StoreEndpoint {
            server: Some(server),
            host: host.to_owned(),
            port,
            _lock: None,
        })
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

    /// Returns the port of the store.
    pub fn port(&self) -> u16 {
        self.port
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
    /// another agent of this machine was faster.
    pub async fn find(plan: &RendezvousPlan) -> Result<StoreEndpoint, RendezvousError> {
        if let Some(path) = &plan.file {
            return StoreEndpoint::by_file(path, plan).await;
        }
        let hosts = match plan.hosts {
            Some(hosts) => hosts,
            None => reach::is_here(&plan.host).await,
        };
        if !hosts {
            return Ok(StoreEndpoint::elsewhere(&plan.host, plan.port));
        }
        match StoreEndpoint::hosted(&plan.host, plan.port) {
            Err(StoreError::PortInUse { .. }) if plan.hosts.is_none() => {
                Ok(StoreEndpoint::elsewhere(&plan.host, plan.port))
            }
            store_endpoint => Ok(store_endpoint?),
        }
    }

    /// Finds the store with `store_type=file`: the agent that locks the file hosts the store and
    /// writes its address into the file. Torch keeps the whole state in the file instead and polls
    /// it.
    async fn by_file(path: &Path, plan: &RendezvousPlan) -> Result<StoreEndpoint, RendezvousError> {
        let unusable = |err| RendezvousError::File {
            path: path.to_path_buf(),
            err,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).map_err(unusable)?;
                let host = plan.local_addr.clone().unwrap_or_else(jobs::host::name);
                let store_endpoint = StoreEndpoint::hosted(&host, 0)?;
                writeln!(file, "{}", reach::endpoint(&host, store_endpoint.port))
                    .map_err(unusable)?;
                Ok(StoreEndpoint {
                    _lock: Some(file),
                    ..store_endpoint
                })
            }
            Err(TryLockError::WouldBlock) => written(&mut file, plan.read_timeout)
                .await
                .map_err(unusable),
            Err(TryLockError::Error(err)) => Err(unusable(err)),
        }
    }

    /// Connects to the store. `patience` limits the attempts to connect, `request_timeout` each
    /// request.
    pub async fn connect(
        &self,
        patience: Duration,
        request_timeout: Duration,
    ) -> Result<StoreClient, RendezvousError> {
        let host = if self.server.is_some() {
            LOOPBACK
        } else {
            &self.host
        };
        reach::connect(host, self.port, patience, request_timeout).await
    }

    /// Returns the address under which other nodes reach this one.
    pub async fn address(&self, client: &StoreClient) -> String {
        match self.server {
            Some(_) => reach::address_of_host(&self.host).await,
            None => reach::address_of_client(client),
        }
    }
}

/// Waits for the address that the host writes into its file.
async fn written(file: &mut File, patience: Duration) -> io::Result<StoreEndpoint> {
    let deadline = Instant::now() + patience;
    let mut text = String::new();
    loop {
        file.rewind()?;
        text.clear();
        file.read_to_string(&mut text)?;
        let endpoint = text
            .strip_suffix('\n')
            .and_then(|text| text.rsplit_once(':'));
        if let Some((host, port)) = endpoint
            && let Ok(port) = port.parse()
        {
            return Ok(StoreEndpoint::elsewhere(
                host.trim_matches(['[', ']']),
                port,
            ));
        }
        if Instant::now() >= deadline {
            return Err(io::Error::other(
                "the node that locked it does not write where the store is",
            ));
        }
        sleep(LOOK).await;
    }
}
