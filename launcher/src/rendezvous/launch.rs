//! What a rendezvous knows about the launch.

use crate::plan::rendezvous::RendezvousPlan;
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
}
