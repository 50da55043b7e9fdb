//! The rendezvous of several nodes: decides which nodes take part and with which ranks, and reports
//! failures of other nodes.
//!
//! ```text
//!          Command: Join, Failed, Done, Leave
//! agent ─────────────────────────────────► fixed (static: given ranks, torch's keys) ─┐
//!       ◄───────────────────────────────── shared ─► join, state, beats (pure) ◄────────┘ all rrun
//!          Notice: Joined, Changed, …        └──► store
//! ```
//! A rendezvous is a task on the agent's thread. A single-node launch has none.

pub mod beats;
pub mod election;
pub mod fixed;
pub mod join;
pub mod place;
pub mod shared;
pub mod state;
pub mod stores;

use std::future::pending;
use std::time::Duration;

use tokio::select;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::plan::{Backend, LaunchPlan, RendezvousPlan};
use crate::rendezvous::fixed::StaticNode;
use crate::rendezvous::place::{Master, NodePlace};
use crate::rendezvous::shared::SharedRendezvous;
use crate::rendezvous::state::{NodeFailure, RendezvousClosed};
use crate::rendezvous::stores::StoreEndpoint;

/// How long the end of a launch is delayed so that the other nodes can learn about it.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a rendezvous knows about the launch.
#[derive(Clone, Debug)]
pub struct LaunchFacts {
    /// How the nodes meet.
    pub plan: RendezvousPlan,
    /// The run id, the same on all nodes.
    pub run_id: String,
    /// The id that this node proposes for the launch.
    pub launch: String,
    /// The role of the ranks.
    pub role: String,
    /// Number of ranks on this node.
    pub nproc: usize,
    /// Whether the ranks are to use a store hosted by the launcher.
    pub is_shared: bool,
}

impl LaunchFacts {
    /// Returns the node rank of a static launch; a negative one, which other backends allow, counts
    /// as 0.
    pub fn node_rank(&self) -> usize {
        usize::try_from(self.plan.node_rank).unwrap_or_default()
    }

    /// Returns where the ranks of a static launch meet: at the store of the launch.
    pub fn master(&self) -> Master {
        Master {
            addr: self.plan.host.clone(),
            port: self.plan.port,
            is_agent_store: true,
        }
    }

    /// Returns a description of this launcher for other nodes.
    pub fn name(&self) -> String {
        format!(
            "{}, pid {}, {}",
            jobs::host::name(),
            std::process::id(),
            self.plan.node_id
        )
    }

    /// Returns the report for other nodes that `what` failed on this node, which has the address
    /// `addr`.
    pub fn failure(&self, addr: &str, what: String) -> NodeFailure {
        format!("node {} ({addr}): {what}", jobs::host::name())
    }

    /// Returns a key of this launch, as torch names those of the static backend.
    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.run_id)
    }
}

/// A command from the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RendezvousCommand {
    /// Leave the round and join the next one; [`Notice::Joined`] follows.
    Join,
    /// Announce that a rank of this node has failed.
    Failed {
        /// The rank and its exit, as text for the other nodes.
        failure: String,
        /// Whether a restart is left; if not, the launch is over on all nodes.
        restarts: bool,
    },
    /// Announce that a rank of this node will not come back, while the others continue: when all
    /// are done, the launch has failed on all nodes.
    LostRank {
        /// The rank and its exit, as text for the other nodes.
        failure: String,
    },
    /// Announce that all ranks of this node have succeeded; [`Notice::Over`] follows when those of
    /// all other nodes have too.
    Done,
    /// Leave for good.
    Leave {
        /// Why the launch cannot go on without this node, in case it hosts the store.
        why: Option<String>,
    },
}

/// A notice to the agent.
#[derive(Debug)]
pub enum Notice {
    /// A line for the user.
    Said(String),
    /// The ranks of a round can start.
    Joined(NodePlace),
    /// The round is over for this reason: end the ranks and join again.
    Changed(String),
    /// The launch is over on all nodes: all ranks have succeeded, or it has failed on another one.
    Over(RendezvousClosed),
    /// The rendezvous has ended with this error.
    Lost(anyhow::Error),
    /// This node has left.
    Left,
}

/// The agent's handle of a rendezvous. Dropping it closes the store, if this node hosts it.
#[derive(Debug)]
pub struct Rendezvous {
    commands: UnboundedSender<RendezvousCommand>,
    notices: UnboundedReceiver<Notice>,
    task: AbortHandle,
}

impl Rendezvous {
    /// Starts to meet the other nodes and to join the first round. Must be called on a runtime.
    /// `launch` is the id of the launch if this node is the first.
    pub fn start(plan: &LaunchPlan, rendezvous: &RendezvousPlan, launch: String) -> Rendezvous {
        let facts = LaunchFacts {
            plan: rendezvous.clone(),
            run_id: plan.run_id.clone(),
            launch,
            role: plan.role.clone(),
            nproc: plan.ranks.len(),
            is_shared: plan.store.is_shared,
        };
        let (commands, received) = unbounded_channel();
        let (sent, notices) = unbounded_channel();
        let task = tokio::spawn(attend(facts, received, sent)).abort_handle();
        Rendezvous {
            commands,
            notices,
            task,
        }
    }

    /// Sends a command to the rendezvous.
    pub fn command(&self, command: RendezvousCommand) {
        // The task ends only after it has been told to leave.
        let _ = self.commands.send(command);
    }

    /// Waits for the next notice. Cancel-safe: dropping the future loses no notice.
    pub async fn recv(&mut self) -> Notice {
        match self.notices.recv().await {
            Some(notice) => notice,
            None => pending().await,
        }
    }

    /// Leaves, and waits for a limited time until the other nodes know.
    pub async fn leave(mut self, why: Option<String>) {
        self.command(RendezvousCommand::Leave { why });
        let left = async { while !matches!(self.recv().await, Notice::Left) {} };
        // Nodes that cannot be told in time will notice that this one is gone.
        let _ = timeout(FAREWELL, left).await;
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn attend(
    facts: LaunchFacts,
    mut commands: UnboundedReceiver<RendezvousCommand>,
    notices: UnboundedSender<Notice>,
) {
    let ended = select! {
        ended = meet(&facts, &notices) => match ended {
            Ok(Met::Apart(apart)) => apart.run(&mut commands).await,
            Ok(Met::Together(shared)) => shared.run(&mut commands).await,
            Err(err) => Err(err),
        },
        () = leave(&mut commands) => Ok(()),
    };
    if let Err(err) = ended {
        // The channel is closed if the launch is over; then nobody needs the notice.
        let _ = notices.send(Notice::Lost(err));
        leave(&mut commands).await;
    }
    let _ = notices.send(Notice::Left);
}

enum Met<'a> {
    Apart(Box<StaticNode<'a>>),
    Together(Box<SharedRendezvous<'a>>),
}

async fn meet<'a>(
    facts: &'a LaunchFacts,
    notices: &'a UnboundedSender<Notice>,
) -> anyhow::Result<Met<'a>> {
    let (key, store_endpoint) = match facts.plan.backend {
        Backend::Static => {
            let met = fixed::meet(facts, notices).await?;
            if !met.is_together {
                return Ok(Met::Apart(Box::new(met)));
            }
            (format!("{}/rrun/state", facts.run_id), met.store_endpoint)
        }
        Backend::C10d => (
            format!("torch.rendezvous.{}", facts.run_id),
            StoreEndpoint::find(&facts.plan).await?,
        ),
    };
    Ok(Met::Together(Box::new(
        SharedRendezvous::enter(facts, key, store_endpoint, notices).await?,
    )))
}

/// Waits until the agent wants to leave.
pub async fn leave(commands: &mut UnboundedReceiver<RendezvousCommand>) {
    while let Some(command) = commands.recv().await {
        if let RendezvousCommand::Leave { .. } = command {
            return;
        }
    }
}
