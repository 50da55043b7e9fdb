//! What a rendezvous knows about the launch, and the messages between it and the agent.

use tokio::sync::mpsc::UnboundedReceiver;

use crate::plan::rendezvous::RendezvousPlan;
use crate::rendezvous::place::NodePlace;
use crate::rendezvous::state::NodeFailure;

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
        NodeFailure {
            node: format!("node {} ({addr})", jobs::host::name()),
            what,
        }
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
    /// Announce that all ranks of this node have succeeded; [`Notice::Succeeded`] follows when
    /// those of all other nodes have too.
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
    /// All ranks of all nodes have succeeded.
    Succeeded,
    /// The launch has failed on another node, for this reason.
    Failed(String),
    /// The rendezvous has ended with this error.
    Lost(anyhow::Error),
    /// This node has left.
    Left,
}

/// Waits until the agent wants to leave.
pub async fn leave(commands: &mut UnboundedReceiver<RendezvousCommand>) {
    while let Some(command) = commands.recv().await {
        if let RendezvousCommand::Leave { .. } = command {
            return;
        }
    }
}
