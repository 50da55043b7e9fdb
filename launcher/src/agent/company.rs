//! Who else takes part: nobody, or the nodes of a rendezvous.

use std::env;
use std::future::pending;
use std::time::Duration;

use crate::plan::Plan;
use crate::plan::rendezvous::RendezvousPlan;
use crate::rendezvous::place::{Assigned, Master, Place, RoleInfo};
use crate::rendezvous::ranks_store::AgentStore;
use crate::rendezvous::{Command, Notice, Rendezvous};
use crate::store::{Client, StoreError};

/// How long the store of the ranks may take to answer: nothing waits for it, and who does not hear that a rank is lost sees
/// that it is still.
const SHORT: Duration = Duration::from_secs(5);

/// Who else takes part.
#[derive(Debug)]
pub enum Company<'a> {
    /// Nobody: the store is here, and there is nothing to agree on.
    Alone {
        /// The launch.
        plan: &'a Plan,
        /// Its name.
        launch: String,
        /// `None` while it is renewed.
        store: Option<AgentStore>,
        /// Rounds so far.
        rounds: u32,
    },
    /// Other nodes.
    Nodes {
        /// The launch.
        plan: &'a Plan,
        /// How to meet them.
        how: &'a RendezvousPlan,
        /// Name of the launch, if this node is the first.
        launch: String,
        /// From the first [`Company::join`] to the end.
        rendezvous: Option<Rendezvous>,
    },
}

impl<'a> Company<'a> {
    /// Hosts the store of a launch on one node. `launch` names it; nodes agree on the name that the first of them has.
    pub fn new(plan: &'a Plan, launch: String) -> Result<Company<'a>, StoreError> {
        if let Some(how) = &plan.rendezvous {
            return Ok(Company::Nodes { plan, how, launch, rendezvous: None });
        }
        // Ranks of the static backend, which is the one with a port, always meet in the store of the launcher.
        let is_shared = plan.store.port.is_some()
            || env::var_os("TORCH_DISABLE_SHARE_RDZV_TCP_STORE").is_none_or(|value| value != "1");
        Ok(Company::Alone { plan, launch, store: Some(AgentStore::open(&plan.store, is_shared)?), rounds: 0 })
    }

    /// Joins the next round. Alone it begins at once; among others [`Notice::Joined`] will say.
    pub async fn join(&mut self) -> Result<Option<Place>, StoreError> {
        match self {
            Company::Alone { plan, launch, store, rounds } => {
                if *rounds > 0
                    && let Some(old) = store.take()
                {
                    *store = Some(old.renew(&plan.store).await?);
                }
                *rounds += 1;
                let place = Place { launch: launch.clone(), ..alone(plan, store.as_ref(), *rounds - 1) };
                show(plan, store.as_ref(), place.assigned);
                Ok(Some(place))
            }
            Company::Nodes { rendezvous: Some(rendezvous), .. } => {
                rendezvous.command(Command::Join);
                Ok(None)
            }
            Company::Nodes { plan, how, launch, rendezvous } => {
                *rendezvous = Some(Rendezvous::start(plan, how, launch.clone()));
                Ok(None)
            }
        }
    }

    /// The next thing that the others do. Dropping the future loses nothing.
    pub async fn recv(&mut self) -> Notice {
        match self {
            Company::Nodes { rendezvous: Some(rendezvous), .. } => rendezvous.recv().await,
            Company::Nodes { rendezvous: None, .. } | Company::Alone { .. } => pending().await,
        }
    }

    /// Tells the others that a rank failed here.
    pub fn failed(&self, failure: String, restarts: bool) {
        if let Company::Nodes { rendezvous: Some(rendezvous), .. } = self {
            rendezvous.command(Command::Failed { failure, restarts });
        }
    }

    /// Tells the others that all ranks here have succeeded; whether there is anybody to wait for.
    pub fn done(&self) -> bool {
        let Company::Nodes { rendezvous: Some(rendezvous), .. } = self else { return false };
        rendezvous.command(Command::Done);
        true
    }

    /// Tells the other ranks, in the store where they meet in `place`, that this one will not come back.
    pub fn lost(&self, place: &Place, rank: usize, reason: &str) {
        let (Company::Alone { plan, .. } | Company::Nodes { plan, .. }) = self;
        let key = format!("rrun/lost/{}/{}/{rank}", plan.run_id, place.round);
        if let Company::Alone { store: Some(AgentStore::Hosted { handle, .. }), .. } = self {
            // As it travels.
            if let Err(err) = handle.set(&format!("/{key}"), reason.as_bytes()) {
                tracing::warn!("`{key}` is not in the store: {err}");
            }
            return;
        }
        let (Master { addr, port, .. }, reason) = (place.master.clone(), reason.to_owned());
        tokio::spawn(async move {
            if let Err(err) = put(&addr, port, &key, reason.as_bytes()).await {
                tracing::warn!("the other ranks do not hear that one is lost: {err}");
            }
        });
    }

    /// Leaves the others; `why` they cannot go on if this node has been their host.
    pub async fn leave(&mut self, why: Option<String>) {
        if let Company::Nodes { rendezvous, .. } = self
            && let Some(rendezvous) = rendezvous.take()
        {
            rendezvous.leave(why).await;
        }
    }
}

/// The place of the only node, in a launch without a name.
pub fn alone(plan: &Plan, store: Option<&AgentStore>, restarts: u32) -> Place {
    let nproc = plan.ranks.len();
    let master = Master {
        addr: plan.store.master_addr.clone(),
        port: store.map_or(0, AgentStore::port),
        is_agent_store: store.is_none_or(AgentStore::is_hosted),
    };
    let assigned = Assigned(0, nproc, 0, nproc);
    Place { launch: String::new(), node: 0, nodes: 1, assigned, master, restarts, round: restarts.into() }
}

/// Stores a value where the ranks meet, and waits until it is there.
async fn put(host: &str, port: u16, key: &str, value: &[u8]) -> Result<(), StoreError> {
    let mut client = Client::connect(host, port, SHORT).await?;
    client.set(key, value).await?;
    client.get(key).await.map(drop)
}

/// Puts into the store what torchrun leaves there with the static backend, which has a port that others may know.
fn show(plan: &Plan, store: Option<&AgentStore>, assigned: Assigned) {
    let (Some(_), Some(AgentStore::Hosted { handle, .. })) = (plan.store.port, store) else { return };
    let info = RoleInfo { role: plan.role.clone(), rank: 0, local_world_size: plan.ranks.len() };
    let key = |name: &str| format!("/{}/torchelastic/{name}/0", plan.run_id);
    let values = [
        ("init/".to_owned(), "1".to_owned()),
        (key("role_info"), serde_json::json!(info).to_string()),
        (key("assigned_ranks"), serde_json::json!(assigned).to_string()),
    ];
    for (key, value) in values {
        if let Err(err) = handle.set(&key, value.as_bytes()) {
            tracing::debug!("`{key}` is not in the store: {err}");
        }
    }
}
