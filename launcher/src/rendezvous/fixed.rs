//! The static rendezvous: nodes with given node ranks meet at the store of node 0. They use torch's
//! own keys, so rrun and torchrun can share a launch.
//!
//! ```text
//! node r   ADD init/ 1 · SET <id>/torchelastic/role_info/<r>
//! node 0   waits for all of them · SETs <id>/torchelastic/assigned_ranks/0..N
//! node r   waits for its own
//! ```
//! Each rrun also writes its name under `<id>/rrun/agent/<r>`, before it counts itself in `init/`.
//! If all nodes have done so, node 0 announces that, and from then on they form a
//! [shared](crate::rendezvous::shared): a failure on one node ends the round on all. If a torchrun
//! takes part, the nodes stay apart as in torchrun: restarts are local, and a node does not
//! learn about failures on others.
//!
//! With `TORCH_ELASTIC_WORKER_IDENTICAL=1`, torchrun exchanges no ranks. Then each rrun waits until
//! all nodes have counted themselves, and looks for their names.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep, timeout_at};

use crate::rendezvous::place::{Assigned, MAX_LOCAL_WORLD_SIZE, NodePlace, RoleInfo, assign};
use crate::rendezvous::state::RendezvousClosed;
use crate::rendezvous::stores::StoreEndpoint;
use crate::rendezvous::{LaunchFacts, Notice, RendezvousCommand, leave};
use tcpstore::{StoreClient, StoreError};

/// Interval between two reports of the missing nodes.
const LOOK: Duration = Duration::from_secs(5);

/// The same between two looks at the number of nodes.
const COUNT: Duration = Duration::from_secs(1);

/// Pause before another attempt to take the place of a node that is gone.
const RETRY: Duration = Duration::from_secs(1);

/// Timeout of the exit barrier (torch/distributed/elastic/agent/server/api.py, torch 2.11:
/// `exit_barrier_timeout`).
const EXIT_BARRIER: Duration = Duration::from_secs(300);

/// One node of a static launch.
#[derive(Debug)]
pub struct StaticNode<'a> {
    facts: &'a LaunchFacts,
    notices: &'a UnboundedSender<Notice>,
    /// The store, hosted by node 0.
    pub store_endpoint: StoreEndpoint,
    client: StoreClient,
    /// The ranks of this node.
    assigned: Assigned,
    /// Whether every node runs rrun.
    pub is_together: bool,
    /// The id of the launch.
    launch: String,
    /// Restarts of this node, if it is apart.
    restarts: u32,
}

/// Two launchers have the same node rank.
#[derive(Debug, thiserror::Error)]
#[error(
    "--node-rank {rank} is taken by another launcher ({by}); each node needs a rank of its own"
)]
struct TakenRank {
    rank: usize,
    /// The host name, pid and id of the other launcher.
    by: String,
}

/// Meets the other nodes. If nodes come back one by one, the place of this one may still be taken by
/// its predecessor, until the others have noticed that it is gone and ended; they come back, too.
pub async fn meet<'a>(
    facts: &'a LaunchFacts,
    notices: &'a UnboundedSender<Notice>,
) -> anyhow::Result<StaticNode<'a>> {
    let deadline = Instant::now() + facts.plan.timeout;
    let mut is_said = false;
    loop {
        let met = meet_once(facts, notices).await;
        let taken = met.as_ref().err().and_then(|err| err.downcast_ref());
        let may_wait = facts.plan.nodes_return && Instant::now() + RETRY < deadline;
        let Some(TakenRank { rank, by }) = taken.filter(|_| may_wait) else {
            return met;
        };
        if !std::mem::replace(&mut is_said, true) {
            // The channel is closed if the launch is over; then nobody needs the notice.
            let _ = notices.send(Notice::Said(format!(
                "waiting until the launch with an earlier node {rank} ({by}) has ended"
            )));
        }
        sleep(RETRY).await;
    }
}

async fn meet_once<'a>(
    facts: &'a LaunchFacts,
    notices: &'a UnboundedSender<Notice>,
) -> anyhow::Result<StaticNode<'a>> {
    let (host, port, timeout) = (&facts.plan.host, facts.plan.port, facts.plan.timeout);
    let (rank, mine) = (facts.node_rank(), facts.name());
    let store_endpoint = match rank {
        0 => StoreEndpoint::hosted(host, port)?,
        _ => StoreEndpoint::elsewhere(host, port),
    };
    let mut client = store_endpoint.connect(timeout, timeout).await?;
    let key = facts.key(&format!("rrun/agent/{rank}"));
    let taken = client.compare_set(&key, b"", mine.as_bytes()).await?;
    if taken != mine.as_bytes() {
        let by = String::from_utf8_lossy(&taken).into_owned();
        return Err(TakenRank { rank, by }.into());
    }
    client.count_in().await?;
    let mut node = StaticNode {
        facts,
        notices,
        store_endpoint,
        client,
        assigned: Assigned::default(),
        is_together: false,
        launch: String::new(),
        restarts: 0,
    };
    (node.assigned, node.is_together) = node.ranks().await?;
    let (key, ours) = (facts.key("rrun/launch"), facts.launch.as_bytes());
    let launch = node.client.compare_set(&key, b"", ours).await?;
    node.launch = String::from_utf8_lossy(&launch).into_owned();
    Ok(node)
}

impl StaticNode<'_> {
    /// Returns the keys of this name of all nodes.
    fn keys(&self, name: &str) -> Vec<String> {
        let nodes = 0..self.facts.plan.max;
        nodes
            .map(|node| self.facts.key(&format!("{name}/{node}")))
            .collect()
    }

    /// Returns the ranks of this node, and whether every node runs rrun.
    async fn ranks(&mut self) -> anyhow::Result<(Assigned, bool)> {
        let (rank, local_world_size) = (self.facts.node_rank(), self.facts.nproc);
        if self.facts.plan.is_identical {
            let (base, world) = (
                rank * local_world_size,
                self.facts.plan.max * local_world_size,
            );
            let names = self.gather("rrun/agent").await?;
            let is_together = names.iter().all(|name| !name.is_empty());
            return Ok((Assigned(base, world, base, world), is_together));
        }
        let info = RoleInfo {
            role: self.facts.role.clone(),
            rank,
            local_world_size,
        };
        let key = self.facts.key(&role_info(rank));
        self.client.set(&key, &json(&info)).await?;
        if rank == 0 {
            self.give().await?;
        }
        let key = self.facts.key(&assigned_ranks(rank));
        let text = self.client.get(&key).await?;
        let what = "list of four numbers with a place for the ranks of this node";
        let has_room = |assigned: &Assigned| assigned.has_room_for(local_world_size);
        let assigned = parse(&key, what, &text, has_room)?;
        let is_together = self
            .client
            .check(&[self.facts.key("rrun/together")])
            .await?;
        Ok((assigned, is_together))
    }

    /// Performs the part of node 0: collects the role information and assigns the ranks.
    async fn give(&mut self) -> anyhow::Result<()> {
        let texts = self.gather("torchelastic/role_info").await?;
        let keys = self.keys("torchelastic/role_info");
        let what = "role information with a possible number of ranks";
        let fits = |info: &RoleInfo| info.local_world_size <= MAX_LOCAL_WORLD_SIZE;
        let infos = keys.iter().zip(&texts);
        let infos = infos.map(|(key, text)| parse(key, what, text, fits));
        let infos: Vec<RoleInfo> = infos.collect::<anyhow::Result<_>>()?;
        if self.client.check(&self.keys("rrun/agent")).await? {
            self.client
                .set(&self.facts.key("rrun/together"), b"1")
                .await?;
        }
        let keys = self.keys("torchelastic/assigned_ranks");
        let assigned = assign(&infos);
        let pairs: Vec<_> = keys.iter().zip(assigned.iter().map(json)).collect();
        Ok(self.client.multi_set(&pairs).await?)
    }

    /// Waits for the keys of this name of all nodes, and reports the missing ones meanwhile. Returns
    /// their values. If ranks are not exchanged, nodes that run torchrun have none.
    async fn gather(&mut self, name: &str) -> anyhow::Result<Vec<Vec<u8>>> {
        let (timeout, wanted) = (self.facts.plan.timeout, self.facts.plan.max);
        let is_identical = self.facts.plan.is_identical;
        let look = if is_identical { COUNT } else { LOOK };
        let deadline = Instant::now() + timeout;
        let keys = self.keys(name);
        let mut said = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let are_all_here = match self.client.wait(&keys, left.min(look)).await {
                Ok(()) => true,
                Err(StoreError::Missing { .. }) => {
                    is_identical && self.client.counted_in().await? >= wanted
                }
                Err(err) => return Err(err.into()),
            };
            let values = self.client.peek(&keys).await?;
            if are_all_here {
                return Ok(values);
            }
            let missing = missing(&values);
            ensure!(
                Instant::now() < deadline || missing.is_empty(),
                "{missing} of {wanted} did not join within {} s",
                timeout.as_secs_f64()
            );
            if missing != said && !missing.is_empty() {
                // The channel is closed if the launch is over; then nobody needs the notice.
                let text = format!("waiting for {missing} of {wanted}");
                let _ = self.notices.send(Notice::Said(text));
                said = missing;
            }
        }
    }

    /// Executes the agent's commands until it leaves, if it shares the launch with a torchrun.
    pub async fn run(
        mut self,
        commands: &mut UnboundedReceiver<RendezvousCommand>,
    ) -> anyhow::Result<()> {
        let notices = self.notices;
        let _ = notices.send(Notice::Joined(self.place()));
        while let Some(command) = commands.recv().await {
            match command {
                RendezvousCommand::Join => drop(notices.send(Notice::Joined(self.place()))),
                RendezvousCommand::Failed { restarts, .. } => self.restarts += u32::from(restarts),
                // A torchrun takes part, which does not know of it.
                RendezvousCommand::LostRank { .. } => {}
                RendezvousCommand::Done => {
                    let succeeded = Notice::Over(RendezvousClosed::Succeeded);
                    tokio::select! {
                        () = self.exit_barrier() => drop(notices.send(succeeded)),
                        () = leave(commands) => return Ok(()),
                    }
                }
                RendezvousCommand::Leave { .. } => return Ok(()),
            }
        }
        Ok(())
    }

    fn place(&self) -> NodePlace {
        NodePlace {
            launch: self.launch.clone(),
            node: self.facts.node_rank(),
            nodes: self.facts.plan.max,
            assigned: self.assigned,
            master: self.facts.master(),
            restarts: self.restarts,
            round: self.restarts.into(),
        }
    }

    /// Waits for the other nodes. Errors are ignored: the ranks here have succeeded all the same.
    async fn exit_barrier(&mut self) {
        let deadline = Instant::now() + EXIT_BARRIER;
        let end = timeout_at(deadline, self.check_out()).await;
        let said = match end {
            Ok(Ok(())) => return,
            Ok(Err(err)) => format!("while waiting for the other nodes to end: {err}"),
            Err(_) => format!(
                "other nodes have not ended within {} s",
                EXIT_BARRIER.as_secs()
            ),
        };
        let _ = self.notices.send(Notice::Said(said));
    }

    async fn check_out(&mut self) -> Result<(), StoreError> {
        let key = |name: &str| {
            let name = format!("torchelastic/agent/terminal_state/{name}");
            self.facts.key(&name)
        };
        let (count, last) = (key("num_members"), key("last_member"));
        let client = &mut self.client;
        let out = usize::try_from(client.add(&count, 1).await?).unwrap_or_default();
        if out >= self.facts.plan.max {
            client.set(&last, b"<val_ignored>").await?;
        }
        client.wait(&[last], EXIT_BARRIER).await
    }
}

/// Names the nodes without a value, or none.
fn missing(values: &[Vec<u8>]) -> String {
    let nodes = values
        .iter()
        .enumerate()
        .filter(|(_, value)| value.is_empty());
    let nodes: Vec<String> = nodes.map(|(node, _)| node.to_string()).collect();
    match nodes.len() {
        0 => String::new(),
        1 => format!("node {}", nodes[0]),
        _ => format!("nodes {}", nodes.join(", ")),
    }
}

/// Returns torch's key for what a node tells about its ranks, without the run id.
pub fn role_info(node: usize) -> String {
    format!("torchelastic/role_info/{node}")
}

/// Returns torch's key for the ranks of a node, without the run id.
pub fn assigned_ranks(node: usize) -> String {
    format!("torchelastic/assigned_ranks/{node}")
}

/// Returns a value of one of torch's keys.
pub fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("names and numbers are JSON")
}

/// Reads a value that torch's own agent may have written, if it is possible.
fn parse<T: DeserializeOwned>(
    key: &str,
    what: &str,
    text: &[u8],
    is_possible: impl Fn(&T) -> bool,
) -> anyhow::Result<T> {
    let found = serde_json::from_slice(text).ok().filter(is_possible);
    found.with_context(|| {
        let found: String = String::from_utf8_lossy(text).chars().take(100).collect();
        format!("`{key}` in the store is `{found}`, expected {what}")
    })
}
