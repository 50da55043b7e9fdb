//! The other nodes of the launch: none, or those that meet in a rendezvous.

use std::time::Duration;

use crate::if_any::if_any;
use crate::plan::LaunchPlan;
use crate::rendezvous::fixed;
use crate::rendezvous::place::{Assigned, Master, NodePlace, RoleInfo};
use crate::rendezvous::stores::AgentStore;
use crate::rendezvous::{Notice, Rendezvous, RendezvousCommand};
use tcpstore::{StoreClient, StoreError};

/// How long the ranks' store may take to answer when the loss of a rank is announced. Nothing waits
/// for the answer, and a rank that misses the announcement still notices that the lost one is
/// silent.
const SHORT: Duration = Duration::from_secs(5);

/// The other nodes of the launch.
#[derive(Debug)]
pub struct NodePeers<'a> {
    plan: &'a LaunchPlan,
    /// The id of the launch; among several nodes, if this one turns out to be the first.
    launch: String,
    /// The store of the ranks, if this node is the only one: then there is nothing to agree on.
    store: Option<AgentStore>,
    /// Number of rounds of a single node so far.
    rounds: u32,
    /// The rendezvous of several nodes, from the first [`NodePeers::join`] to the end.
    rendezvous: Option<Rendezvous>,
}

impl<'a> NodePeers<'a> {
    /// Opens the store of a single-node launch; with several nodes, nothing starts before the first
    /// [`NodePeers::join`]. `launch` is the id of the launch; several nodes agree on the id of the
    /// first of them.
    pub fn new(plan: &'a LaunchPlan, launch: String) -> Result<NodePeers<'a>, StoreError> {
        let store = match plan.rendezvous {
            Some(_) => None,
            None => Some(AgentStore::open(&plan.store)?),
        };
        Ok(NodePeers {
            plan,
            launch,
            store,
            rounds: 0,
            rendezvous: None,
        })
    }

    /// Joins the next round. On a single node the round begins at once; among several nodes,
    /// [`Notice::Joined`] reports its beginning.
    pub fn join(&mut self) -> Result<Option<NodePlace>, StoreError> {
        if let Some(store) = &mut self.store {
            if self.rounds > 0 {
                store.renew(&self.plan.store)?;
            }
            let place = NodePlace {
                launch: self.launch.clone(),
                ..alone(self.plan, Some(store), self.rounds)
            };
            self.rounds += 1;
            show(self.plan, store, place.assigned);
            return Ok(Some(place));
        }
        if !self.command(RendezvousCommand::Join)
            && let Some(how) = &self.plan.rendezvous
        {
            let rendezvous = Rendezvous::start(self.plan, how, self.launch.clone());
            self.rendezvous = Some(rendezvous);
        }
        Ok(None)
    }

    /// Tells the rendezvous something. Returns whether there is one.
    fn command(&self, command: RendezvousCommand) -> bool {
        let Some(rendezvous) = &self.rendezvous else {
            return false;
        };
        rendezvous.command(command);
        true
    }

    /// Waits for the next notice from the other nodes. Cancel-safe: dropping the future loses no
    /// notice.
    pub async fn recv(&mut self) -> Notice {
        if_any(self.rendezvous.as_mut().map(Rendezvous::recv)).await
    }

    /// Tells the other nodes that a rank failed on this one.
    pub fn failed(&self, failure: String, restarts: bool) {
        self.command(RendezvousCommand::Failed { failure, restarts });
    }

    /// Tells the other nodes that all ranks of this one have succeeded. Returns whether there are
    /// other nodes to wait for.
    pub fn done(&self) -> bool {
        self.command(RendezvousCommand::Done)
    }

    /// Tells the other ranks that rank `rank` will not come back, by a key in the store where the
    /// ranks of `place` meet, and by another one that tells that there are such keys.
    pub fn lost(&self, place: &NodePlace, rank: usize, reason: &str) {
        let how = self.plan.rendezvous.as_ref();
        if how.is_some_and(|how| how.nodes_return) {
            let failure = reason.to_owned();
            self.command(RendezvousCommand::LostRank { failure });
        }
        let meeting = format!("rrun/lost/{}/{}", self.plan.run_id, place.round);
        // In this order: who finds the second key finds the first.
        let keys = [format!("{meeting}/{rank}"), format!("{meeting}/any")];
        if let Some(AgentStore::Hosted(handle)) = &self.store {
            for key in keys {
                if let Err(err) = handle.set(&key, reason.as_bytes()) {
                    tracing::warn!("`{key}` is not in the store: {err}");
                }
            }
            return;
        }
        let (Master { addr, port, .. }, reason) = (place.master.clone(), reason.to_owned());
        tokio::spawn(async move {
            for key in keys {
                if let Err(err) = put(&addr, port, &key, reason.as_bytes()).await {
                    tracing::warn!("cannot tell the other ranks that one is lost: {err}");
                }
            }
        });
    }

    /// Leaves the rendezvous. `why` is the reason that the other nodes read if they cannot go on
    /// because this node hosts their store.
    pub async fn leave(&mut self, why: Option<String>) {
        if let Some(rendezvous) = self.rendezvous.take() {
            rendezvous.leave(why).await;
        }
    }
}

/// Returns the place of the only node, with an empty launch id.
pub fn alone(plan: &LaunchPlan, store: Option<&AgentStore>, restarts: u32) -> NodePlace {
    let nproc = plan.ranks.len();
    let master = Master {
        addr: plan.store.master_addr.clone(),
        port: store.map_or(0, AgentStore::port),
        is_agent_store: store.is_none_or(AgentStore::is_hosted),
    };
    let assigned = Assigned(0, nproc, 0, nproc);
    NodePlace {
        launch: String::new(),
        node: 0,
        nodes: 1,
        assigned,
        master,
        restarts,
        round: restarts.into(),
    }
}

/// Stores a value in the ranks' store and waits until it can be read.
async fn put(host: &str, port: u16, key: &str, value: &[u8]) -> Result<(), StoreError> {
    let mut client = StoreClient::connect(host, port, SHORT).await?;
    client.set(key, value).await?;
    client.get(key).await.map(drop)
}

/// Writes the keys that torchrun leaves in the store with the static backend, whose port other
/// processes may know.
fn show(plan: &LaunchPlan, store: &AgentStore, assigned: Assigned) {
    let (Some(_), AgentStore::Hosted(handle)) = (plan.store.port, store) else {
        return;
    };
    let info = RoleInfo {
        role: plan.role.clone(),
        rank: 0,
        local_world_size: plan.ranks.len(),
    };
    let set = |name, value: Vec<u8>| handle.set(&format!("{}/{name}", plan.run_id), &value);
    let shown = handle
        .count_in()
        .and_then(|()| set(fixed::role_info(0), fixed::json(&info)))
        .and_then(|()| set(fixed::assigned_ranks(0), fixed::json(&assigned)));
    if let Err(err) = shown {
        tracing::debug!("torch's keys are not in the store: {err}");
    }
}
