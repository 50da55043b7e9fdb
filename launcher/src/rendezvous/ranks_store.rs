//! The store in which the ranks of a round meet, renewed for every round.
//!
//! A restarted rank must not find the keys of its dead predecessor: a fast rank would use them to
//! connect to a peer that is gone (pytorch/pytorch#135712). When the store is renewed all ranks
//! have ended, so an empty store on the same port is safe.

use std::io;
use std::net::{Ipv6Addr, TcpListener};

use crate::plan::StorePlan;
use crate::say;
use tcpstore::{PortOwner, ServerHandle, StoreError, StoreServer};

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
            Err(StoreError::PortInUse { owner, .. }) if plan.may_move => {
                AgentStore::host_elsewhere(plan, owner)
            }
            hosted => hosted,
        }
    }

    /// Hosts the store on a free port because the usual one is taken, and reports that: a script
    /// may have the usual port hard-coded.
    fn host_elsewhere(
        plan: &StorePlan,
        owner: Option<PortOwner>,
    ) -> Result<AgentStore, StoreError> {
        let store = AgentStore::host(plan, None)?;
        let by = owner
            .map(|owner| format!(" by {owner}"))
            .unwrap_or_default();
        let (usual, port) = (plan.port.unwrap_or_default(), store.port());
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

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
