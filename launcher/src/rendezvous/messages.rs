//! The messages between the agent and its rendezvous.

use tokio::sync::mpsc::UnboundedReceiver;

use crate::rendezvous::error::RendezvousError;
use crate::rendezvous::place::NodePlace;

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
    Lost(RendezvousError),
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
