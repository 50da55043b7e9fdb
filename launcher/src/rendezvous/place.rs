//! The assignment of global ranks to nodes: running sums over the nodes in order. Pure.

use serde::{Deserialize, Serialize};

/// Upper limit of the ranks of one node (Linux: `PID_MAX_LIMIT`), so that sums over nodes cannot
/// overflow.
pub const MAX_LOCAL_WORLD_SIZE: usize = 4 << 20;

/// What a node tells the others about its ranks. Its JSON form is torch's `role_info`; `rank` is
/// the rank of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleInfo {
    /// Value of `ROLE_NAME`.
    pub role: String,
    /// Index of the node.
    pub rank: usize,
    /// Number of ranks on the node.
    pub local_world_size: usize,
}

/// The ranks assigned to a node. Its JSON form is torch's `assigned_ranks`, a list of four numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assigned(
    /// Global rank of the node's first process.
    pub usize,
    /// World size: the number of ranks on all nodes.
    pub usize,
    /// Rank of the first process among those of its role.
    pub usize,
    /// Number of ranks of this role.
    pub usize,
);

impl Assigned {
    /// Returns whether a node with this many ranks fits into the assignment.
    pub fn has_room_for(self, local_world_size: usize) -> bool {
        let Assigned(base, world, role_base, role_world) = self;
        let is_within = |base: usize, all: usize| {
            base.checked_add(local_world_size)
                .is_some_and(|end| end <= all)
        };
        is_within(base, world) && is_within(role_base, role_world)
    }
}

/// Assigns ranks to nodes, one entry per node in their order
/// (torch/distributed/elastic/agent/server/api.py, torch 2.11: `_assign_worker_ranks`).
pub fn assign(nodes: &[RoleInfo]) -> Vec<Assigned> {
    let sum = |nodes: &[RoleInfo], role: Option<&str>| -> usize {
        let counted = nodes
            .iter()
            .filter(|node| role.is_none_or(|role| node.role == role));
        counted.map(|node| node.local_world_size).sum()
    };
    let one = |(index, node): (usize, &RoleInfo)| {
        let (before, role) = (&nodes[..index], Some(node.role.as_str()));
        Assigned(
            sum(before, None),
            sum(nodes, None),
            sum(before, role),
            sum(nodes, role),
        )
    };
    nodes.iter().enumerate().map(one).collect()
}

/// The store in which the ranks of a round meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Master {
    /// Value of `MASTER_ADDR`.
    pub addr: String,
    /// Value of `MASTER_PORT`.
    pub port: u16,
    /// Whether a launcher hosts the store there, instead of rank 0.
    pub is_agent_store: bool,
}

/// This node's place in a round: everything that its ranks are told about the other nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// The unique id of the launch; see [`jobs::launch`].
    pub launch: String,
    /// Index of this node, `GROUP_RANK`.
    pub node: usize,
    /// Number of nodes, `GROUP_WORLD_SIZE`.
    pub nodes: usize,
    /// The ranks of this node.
    pub assigned: Assigned,
    /// Where the ranks meet.
    pub master: Master,
    /// Restarts of the whole launch so far, `TORCHELASTIC_RESTART_COUNT`.
    pub restarts: u32,
    /// Number of rounds before this one, for whatever reason they ended; the same on each node.
    pub round: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(role: &str, rank: usize, local_world_size: usize) -> RoleInfo {
        RoleInfo {
            role: role.to_owned(),
            rank,
            local_world_size,
        }
    }

    #[test]
    fn ranks_beyond_the_world_are_no_place() {
        assert!(Assigned(2, 6, 0, 4).has_room_for(4));
        for assigned in [
            Assigned(3, 6, 0, 4),
            Assigned(0, 6, 1, 4),
            Assigned(usize::MAX, usize::MAX, 0, 4),
        ] {
            assert!(!assigned.has_room_for(4), "{assigned:?}");
        }
    }

    #[test]
    fn nodes_may_differ_in_size_and_role() {
        let nodes = [info("ps", 0, 2), info("tr", 1, 1), info("ps", 2, 3)];
        assert_eq!(
            assign(&nodes),
            [
                Assigned(0, 6, 0, 5),
                Assigned(2, 6, 0, 1),
                Assigned(3, 6, 2, 5)
            ]
        );
    }

    #[test]
    fn json_is_torch_s() {
        let text = serde_json::to_string(&info("default", 0, 2)).expect("it is JSON");
        assert_eq!(text, r#"{"role":"default","rank":0,"local_world_size":2}"#);
        assert_eq!(
            serde_json::to_string(&Assigned(0, 4, 0, 2)).expect("it is JSON"),
            "[0,4,0,2]"
        );
    }
}
