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
//! takes part, the nodes stay [apart](Apart) as in torchrun: restarts are local, and a node does not
//! learn about failures on others.
//!
//! With `TORCH_ELASTIC_WORKER_IDENTICAL=1`, torchrun exchanges no ranks. Then each rrun waits until
//! all nodes have counted themselves, and looks for their names.

use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep, timeout_at};

use crate::plan::rendezvous::RendezvousPlan;
use crate::rendezvous::error::{RendezvousError, nodes};
use crate::rendezvous::launch::LaunchFacts;
use crate::rendezvous::messages::{Notice, RendezvousCommand, leave};
use crate::rendezvous::place::{
    Assigned, MAX_LOCAL_WORLD_SIZE, Master, NodePlace, RoleInfo, assign,
};
use crate::rendezvous::store_endpoint::StoreEndpoint;
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

/// A node that has met the others.
#[derive(Debug)]
pub struct Fixed {
    /// The store, hosted by node 0.
    pub store_endpoint: StoreEndpoint,
    client: StoreClient,
    /// Whether every node runs rrun.
    pub is_together: bool,
    /// The ranks of this node.
    assigned: Assigned,
    /// The id of the launch.
    launch: String,
}

/// Meets the other nodes. If nodes come back one by one, the place of this one may still be taken by
/// its predecessor, until the others have noticed that it is gone and ended; they come back, too.
pub async fn meet(
    facts: &LaunchFacts,
    notices: &UnboundedSender<Notice>,
) -> Result<Fixed, RendezvousError> {
    let deadline = Instant::now() + facts.plan.timeout;
    let mut is_said = false;
    loop {
        match meet_once(facts, notices).await {
            Err(err @ RendezvousError::TakenRank { .. })
                if facts.plan.nodes_return && Instant::now() + RETRY < deadline =>
            {
                if !is_said {
                    // The channel is closed if the launch is over; then nobody needs the notice.
                    let _ = notices.send(Notice::Said(waiting_for_end(&err)));
                }
                is_said = true;
                sleep(RETRY).await;
            }
            met => return met,
        }
    }
}

fn waiting_for_end(err: &RendezvousError) -> String {
    let RendezvousError::TakenRank { rank, by } = err else {
        return err.to_string();
    };
    format!("waiting until the launch with an earlier node {rank} ({by}) has ended")
}

async fn meet_once(
    facts: &LaunchFacts,
    notices: &UnboundedSender<Notice>,
) -> Result<Fixed, RendezvousError> {
    let RendezvousPlan {
        ref host,
        port,
        timeout,
        ..
    } = facts.plan;
    let store_endpoint = match facts.node_rank() {
        0 => StoreEndpoint::hosted(host, port)?,
        _ => StoreEndpoint::elsewhere(host, port),
    };
    let mut client = store_endpoint.connect(timeout, timeout).await?;
    let key = format!("{}/rrun/agent/{}", facts.run_id, facts.node_rank());
    let (mine, rank) = (facts.name(), facts.node_rank());
    let taken = client.compare_set(&key, b"", mine.as_bytes()).await?;
    if taken != mine.as_bytes() {
        return Err(RendezvousError::TakenRank {
            rank,
            by: String::from_utf8_lossy(&taken).into_owned(),
        });
    }
    client.count_in().await?;
    let mut meeting = StaticMeeting {
        facts,
        client,
        notices,
    };
    let (assigned, is_together) = meeting.ranks().await?;
    let key = meeting.key("rrun/launch");
    let launch = meeting
        .client
        .compare_set(&key, b"", facts.launch.as_bytes())
        .await?;
    let launch = String::from_utf8_lossy(&launch).into_owned();
    Ok(Fixed {
        store_endpoint,
        client: meeting.client,
        is_together,
        assigned,
        launch,
    })
}

/// The exchange of role information and ranks.
struct StaticMeeting<'a> {
    facts: &'a LaunchFacts,
    client: StoreClient,
    notices: &'a UnboundedSender<Notice>,
}

impl StaticMeeting<'_> {
    fn key(&self, rest: &str) -> String {
        format!("{}/{rest}", self.facts.run_id)
    }

    /// Returns the ranks of this node, and whether every node runs rrun.
    async fn ranks(&mut self) -> Result<(Assigned, bool), RendezvousError> {
        let (rank, nodes, local_world_size) = (
            self.facts.node_rank(),
            self.facts.plan.max,
            self.facts.nproc,
        );
        if self.facts.plan.is_identical {
            let (base, world) = (rank * local_world_size, nodes * local_world_size);
            let is_together = self.gather("rrun/agent").await?;
            return Ok((Assigned(base, world, base, world), is_together));
        }
        let info = RoleInfo {
            role: self.facts.role.clone(),
            rank,
            local_world_size,
        };
        let key = self.key(&format!("torchelastic/role_info/{rank}"));
        self.client.set(&key, &json(&info)).await?;
        if rank == 0 {
            self.give().await?;
        }
        let key = self.key(&format!("torchelastic/assigned_ranks/{rank}"));
        let text = self.client.get(&key).await?;
        let assigned: Assigned = parse(&key, "list of four numbers", &text)?;
        if !assigned.has_room_for(local_world_size) {
            return Err(malformed(&key, "place for the ranks of this node", &text));
        }
        let is_together = self.client.check(&[&self.key("rrun/together")]).await?;
        Ok((assigned, is_together))
    }

    /// Performs the part of node 0: collects the role information and assigns the ranks.
    async fn give(&mut self) -> Result<(), RendezvousError> {
        self.gather("torchelastic/role_info").await?;
        let nodes = 0..self.facts.plan.max;
        let mut infos: Vec<RoleInfo> = Vec::new();
        for node in nodes.clone() {
            let key = self.key(&format!("torchelastic/role_info/{node}"));
            let text = self.client.get(&key).await?;
            let info: RoleInfo = parse(&key, "role information", &text)?;
            if info.local_world_size > MAX_LOCAL_WORLD_SIZE {
                return Err(malformed(
                    &key,
                    "role information with a possible number of ranks",
                    &text,
                ));
            }
            infos.push(info);
        }
        let agents: Vec<String> = nodes
            .clone()
            .map(|node| self.key(&format!("rrun/agent/{node}")))
            .collect();
        if self
            .client
            .check(&agents.iter().map(String::as_str).collect::<Vec<_>>())
            .await?
        {
            let key = self.key("rrun/together");
            self.client.set(&key, b"1").await?;
        }
        let keys: Vec<String> = nodes
            .map(|node| self.key(&format!("torchelastic/assigned_ranks/{node}")))
            .collect();
        let values: Vec<Vec<u8>> = assign(&infos).iter().map(json).collect();
        let pairs: Vec<(&str, &[u8])> = keys
            .iter()
            .map(String::as_str)
            .zip(values.iter().map(Vec::as_slice))
            .collect();
        Ok(self.client.multi_set(&pairs).await?)
    }

    /// Waits for the keys `what` of all nodes, and reports the missing ones meanwhile. Returns
    /// whether all are there. If ranks are not exchanged, nodes that run torchrun come without.
    async fn gather(&mut self, what: &str) -> Result<bool, RendezvousError> {
        let (timeout, wanted) = (self.facts.plan.timeout, self.facts.plan.max);
        let is_identical = self.facts.plan.is_identical;
        let look = if is_identical { COUNT } else { LOOK };
        let deadline = Instant::now() + timeout;
        let keys: Vec<String> = (0..wanted)
            .map(|node| self.key(&format!("{what}/{node}")))
            .collect();
        let all: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut said = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.client.wait(&all, left.min(look)).await {
                Err(StoreError::Missing { .. }) => {}
                done => return Ok(done.map(|()| true)?),
            }
            if is_identical && self.client.counted_in().await? >= wanted {
                return Ok(self.client.check(&all).await?);
            }
            let missing = self.missing(&all).await?;
            if Instant::now() >= deadline && !missing.is_empty() {
                return Err(RendezvousError::Missing {
                    missing,
                    wanted,
                    timeout,
                });
            }
            if missing != said && !missing.is_empty() {
                // The channel is closed if the launch is over; then nobody needs the notice.
                let _ = self.notices.send(Notice::Said(format!(
                    "waiting for {} of {wanted}",
                    nodes(&missing)
                )));
                said = missing;
            }
        }
    }

    async fn missing(&mut self, keys: &[&str]) -> Result<String, RendezvousError> {
        let mut missing = Vec::new();
        for (node, key) in keys.iter().enumerate() {
            if !self.client.check(&[key]).await? {
                missing.push(node.to_string());
            }
        }
        Ok(missing.join(", "))
    }
}

/// A node that shares the launch with a torchrun.
#[derive(Debug)]
pub struct Apart<'a> {
    facts: &'a LaunchFacts,
    fixed: Fixed,
    restarts: u32,
}

impl<'a> Apart<'a> {
    /// Continues after the nodes have met.
    pub fn new(facts: &'a LaunchFacts, fixed: Fixed) -> Apart<'a> {
        Apart {
            facts,
            fixed,
            restarts: 0,
        }
    }

    /// Executes the agent's commands until it leaves.
    pub async fn run(
        mut self,
        commands: &mut UnboundedReceiver<RendezvousCommand>,
        notices: &UnboundedSender<Notice>,
    ) -> Result<(), RendezvousError> {
        let _ = notices.send(Notice::Joined(self.place()));
        while let Some(command) = commands.recv().await {
            match command {
                RendezvousCommand::Join => drop(notices.send(Notice::Joined(self.place()))),
                RendezvousCommand::Failed { restarts, .. } => self.restarts += u32::from(restarts),
                // A torchrun takes part, which does not know of it.
                RendezvousCommand::LostRank { .. } => {}
                RendezvousCommand::Done => {
                    tokio::select! {
                        () = self.exit_barrier(notices) => drop(notices.send(Notice::Succeeded)),
                        () = leave(commands) => return Ok(()),
                    }
                }
                RendezvousCommand::Leave { .. } => return Ok(()),
            }
        }
        Ok(())
    }

    fn place(&self) -> NodePlace {
        let RendezvousPlan {
            ref host,
            port,
            max: nodes,
            ..
        } = self.facts.plan;
        let master = Master {
            addr: host.clone(),
            port,
            is_agent_store: true,
        };
        let (node, assigned, restarts) =
            (self.facts.node_rank(), self.fixed.assigned, self.restarts);
        let launch = self.fixed.launch.clone();
        NodePlace {
            launch,
            node,
            nodes,
            assigned,
            master,
            restarts,
            round: restarts.into(),
        }
    }

    /// Waits for the other nodes. Errors are ignored: the ranks here have succeeded all the same.
    async fn exit_barrier(&mut self, notices: &UnboundedSender<Notice>) {
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
        let _ = notices.send(Notice::Said(said));
    }

    async fn check_out(&mut self) -> Result<(), StoreError> {
        let key = |name: &str| {
            format!(
                "{}/torchelastic/agent/terminal_state/{name}",
                self.facts.run_id
            )
        };
        let last = key("last_member");
        let client = &mut self.fixed.client;
        if client.add(&key("num_members"), 1).await?
            >= i64::try_from(self.facts.plan.max).unwrap_or(i64::MAX)
        {
            client.set(&last, b"<val_ignored>").await?;
        }
        client.wait(&[&last], EXIT_BARRIER).await
    }
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("names and numbers are JSON")
}

fn parse<T: DeserializeOwned>(
    key: &str,
    what: &'static str,
    text: &[u8],
) -> Result<T, RendezvousError> {
    serde_json::from_slice(text).map_err(|_| malformed(key, what, text))
}

fn malformed(key: &str, what: &'static str, text: &[u8]) -> RendezvousError {
    let found = String::from_utf8_lossy(text).chars().take(100).collect();
    RendezvousError::Malformed {
        key: key.to_owned(),
        what,
        found,
    }
}
