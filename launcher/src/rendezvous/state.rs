//! The state that the nodes of an elastic launch share: one value in the store, changed by
//! `COMPARE_SET`. Pure, and without times, so clocks of different nodes are never compared.
//!
//! ```text
//!            the last one expected joins | MAX | last call over
//!   gathering ─────────────────────────────────────────────────► complete ─all done─► closed
//!   round r     participants join                                   │  │
//!       ▲                                                           │  └ failed for good ─► closed
//!       └────────── r + 1, when the last participant has left ──────┘
//!                   (a failure, a dead node, a waiting node: all leave and join again)
//! ```
//! The names are torch's: `participants`, `wait_list` (nodes that came while a round runs),
//! `redundancy_list` (nodes beyond MAX).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use jobs::count::counted;
use serde::{Deserialize, Serialize};

use crate::rendezvous::election::electorate::Electorate;
use crate::rendezvous::place::{
    Assigned, MAX_LOCAL_WORLD_SIZE, Master, NodePlace, RoleInfo, assign,
};

/// Upper limit of the counters of writes and rounds, which no launch reaches, so that sums of two
/// cannot overflow.
const MAX_COUNT: u64 = 1 << 48;

/// Identifies one agent for its life; no other agent ever has the same id.
pub type NodeId = String;

/// What a node tells the others about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// The address under which other nodes reach it.
    pub addr: String,
    /// `--node-rank`, which precedes the address in the order of nodes.
    pub node_rank: i64,
    /// Value of `ROLE_NAME`.
    pub role: String,
    /// Number of ranks on this node.
    pub nproc: usize,
    /// The port of its store, which is that of the launch if the node hosts it. Versions of rrun
    /// that elect no host have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_port: Option<u16>,
}

/// The failure of a rank or the loss of a node, as text for other nodes, which names the node:
/// `node gpu7 (10.0.0.7): rank 3 exited with code 1`.
pub type NodeFailure = String;

/// How a launch ended for all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RendezvousClosed {
    /// Every rank of every node exited with code 0.
    Succeeded,
    /// A rank or node failed and no restart was left.
    Failed(NodeFailure),
}

/// The shared state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RendezvousState {
    /// The id of the launch, chosen by its first node.
    #[serde(default)]
    pub launch: String,
    /// The epoch of the host; see [`crate::rendezvous::election`].
    #[serde(default)]
    pub epoch: u64,
    /// The node that hosts the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<NodeId>,
    /// The nodes of the last round that began, which elect the next host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Electorate>,
    /// Rounds after `base` that were complete when their host was lost. They may have begun, so
    /// their nodes elect, too, until another round begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubtful: Vec<Electorate>,
    /// The nodes of the complete round, until it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed: Option<Electorate>,
    /// Nodes of these that have left for good in an orderly way.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub retired: BTreeSet<NodeId>,
    /// Nodes that have acknowledged `proposed` in this epoch.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ready: BTreeSet<NodeId>,
    /// Number of writes.
    pub version: u64,
    /// Number of the current round.
    pub round: u64,
    /// Restarts of the whole launch so far.
    pub restarts: u32,
    /// The nodes of a complete round in the order of their ranks; empty while the round gathers.
    pub world: Vec<(NodeId, NodeInfo)>,
    /// Where the ranks of the complete round meet, once the store there listens.
    pub master: Option<Master>,
    /// Why the complete round ends.
    pub failure: Option<NodeFailure>,
    /// A rank that will not come back, although the round continues: the launch will have failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<NodeFailure>,
    /// How the launch ended; never changes once it is set.
    pub closed: Option<RendezvousClosed>,
    /// The nodes in this round.
    pub participants: BTreeMap<NodeId, NodeInfo>,
    /// Participants whose ranks have all succeeded.
    pub done: BTreeSet<NodeId>,
    /// Nodes that wait for the next round.
    pub wait_list: BTreeSet<NodeId>,
    /// Nodes for which there is no place.
    pub redundancy_list: BTreeSet<NodeId>,
    /// The nodes of the previous round.
    pub expected: BTreeSet<NodeId>,
    /// Nodes that have left the complete round for good in an orderly way.
    #[serde(default)]
    pub left: BTreeSet<NodeId>,
}

impl RendezvousState {
    /// Returns whether the counters have values that nodes can have reached. Larger ones would
    /// overflow, and are not written by rrun.
    pub fn is_plausible(&self) -> bool {
        let counts = [self.epoch, self.version, self.round, self.restarts.into()];
        let infos = self.world.iter().map(|(_, info)| info);
        let mut infos = infos.chain(self.participants.values());
        counts.iter().all(|count| *count <= MAX_COUNT)
            && self.restarts < u32::MAX
            && infos.all(|info| (1..=MAX_LOCAL_WORLD_SIZE).contains(&info.nproc))
    }

    /// Returns whether the ranks have been assigned.
    pub fn is_complete(&self) -> bool {
        !self.world.is_empty()
    }

    /// Returns whether all nodes of the complete round are still in it.
    pub fn is_whole(&self) -> bool {
        let mut ids = self.world.iter().map(|(id, _)| id);
        self.is_complete() && ids.all(|id| self.participants.contains_key(id))
    }

    /// Returns whether this node is in any list.
    pub fn knows(&self, id: &str) -> bool {
        self.participants.contains_key(id)
            || self.wait_list.contains(id)
            || self.redundancy_list.contains(id)
    }

    /// Returns all nodes in any list.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        let lists = self.wait_list.iter().chain(&self.redundancy_list);
        self.participants.keys().chain(lists).cloned().collect()
    }

    /// Returns whether there is a place in this gathering round for a node that is not a
    /// participant. Nodes of the previous round have priority.
    pub fn has_place_for(&self, id: &str, max: usize) -> bool {
        let reserved = match self.expected.contains(id) {
            true => 0,
            false => self.wait_list.intersection(&self.expected).count(),
        };
        !self.is_complete() && self.participants.len() + reserved < max
    }

    /// Returns whether all nodes of the previous round are back and no other node waits: then there
    /// is no last call.
    pub fn is_reunited(&self) -> bool {
        let is_back = |id: &NodeId| self.participants.contains_key(id);
        !self.expected.is_empty() && self.expected.iter().all(is_back) && self.wait_list.is_empty()
    }

    /// Adds a node to the gathering round.
    pub fn add(&mut self, id: &str, node_info: NodeInfo) {
        self.wait_list.remove(id);
        self.redundancy_list.remove(id);
        self.participants.insert(id.to_owned(), node_info);
    }

    /// Completes the round: fixes the order of its nodes, from which the ranks follow.
    pub fn complete(&mut self) {
        let mut world: Vec<_> = self.participants.clone().into_iter().collect();
        world.sort_by(|(id, node_info), (other_id, other)| {
            order(node_info, other).then_with(|| id.cmp(other_id))
        });
        self.world = world;
        self.proposed = self.electorate();
    }

    /// Removes a node that leaves in an orderly way.
    pub fn leave(&mut self, id: &str) {
        if self.participants.contains_key(id) && self.is_complete() {
            self.left.insert(id.to_owned());
        }
        if self.electorates().any(|it| it.has(id)) {
            self.retired.insert(id.to_owned());
        }
        self.remove(id);
    }

    /// Removes a node from all lists. When the last participant of a complete round is removed, the
    /// next round begins.
    pub fn remove(&mut self, id: &str) {
        self.participants.remove(id);
        self.done.remove(id);
        self.wait_list.remove(id);
        self.redundancy_list.remove(id);
        if self.is_complete() && self.participants.is_empty() && self.closed.is_none() {
            self.round += 1;
            let world = std::mem::take(&mut self.world).into_iter();
            self.expected = world.map(|(id, _)| id).collect();
            self.master = None;
            self.failure = None;
            self.lost = None;
            self.proposed = None;
            self.ready.clear();
            self.done.clear();
            self.left.clear();
        }
    }

    /// Sets the reason why the round ends, unless one is set. Returns whether it was set now.
    pub fn fail(&mut self, failure: NodeFailure, restarts: bool) -> bool {
        if self.failure.is_some() || self.closed.is_some() {
            return false;
        }
        if restarts {
            self.restarts += 1;
        } else {
            self.closed = Some(RendezvousClosed::Failed(failure.clone()));
        }
        self.failure = Some(failure);
        true
    }

    /// Records that all ranks of a node have ended; the last node closes the launch.
    pub fn finish(&mut self, id: &str) {
        self.done.insert(id.to_owned());
        if self.is_whole()
            && self.failure.is_none()
            && self.world.iter().all(|(id, _)| self.done.contains(id))
        {
            let end = match &self.lost {
                Some(failure) => RendezvousClosed::Failed(failure.clone()),
                None => RendezvousClosed::Succeeded,
            };
            self.closed.get_or_insert(end);
        }
    }

    /// Returns the index of a node in the complete round.
    pub fn node(&self, id: &str) -> Option<usize> {
        self.world.iter().position(|(known, _)| known == id)
    }

    /// Returns the place of a node in the complete round, once the ranks' store is known.
    pub fn place(&self, id: &str) -> Option<NodePlace> {
        let (node, master) = (self.node(id)?, self.master.clone()?);
        let info = |(rank, (_, node_info)): (usize, &(NodeId, NodeInfo))| RoleInfo {
            role: node_info.role.clone(),
            rank,
            local_world_size: node_info.nproc,
        };
        let assigned: Vec<Assigned> =
            assign(&self.world.iter().enumerate().map(info).collect::<Vec<_>>());
        let (nodes, assigned, launch) = (self.world.len(), assigned[node], self.launch.clone());
        Some(NodePlace {
            launch,
            node,
            nodes,
            assigned,
            master,
            restarts: self.restarts,
            round: self.round,
        })
    }

    /// Returns why the round of this node has to end, if it has to. A round has at most `max`
    /// nodes.
    pub fn broken(&self, round: u64, me: &str, max: usize) -> Option<String> {
        if self.round != round || !self.participants.contains_key(me) {
            let why = "the other nodes considered this one dead; it joins them again";
            return Some(why.to_owned());
        }
        if let Some(failure) = &self.failure {
            return Some(format!("{failure}; all nodes restart"));
        }
        if let Some((nodes, what)) = self.departed() {
            let nodes = nodes.join(", ");
            return Some(format!("node {nodes} {what}; the others start a new round"));
        }
        let waiting = self.wait_list.len();
        // Once a node is done, no further node is let in: it would force the ranks of the done node
        // to start again.
        let may_come = self.done.is_empty() && waiting > 0 && self.participants.len() < max;
        may_come.then(|| {
            let nodes = counted(waiting, "node");
            format!("waiting to join: {nodes}; all start a new round")
        })
    }

    /// Returns the failure of a launch that cannot replace a lost node.
    pub fn loss(&self) -> Option<NodeFailure> {
        let (nodes, what) = self.departed()?;
        Some(format!("{}: the node {what}", nodes.first()?))
    }

    /// Returns the nodes that have left the round, by their addresses, and what became of them:
    /// those that died if there are any, otherwise those that left in an orderly way. Nodes that
    /// wait for the next round did not cause its end; they are named only if no other is missing.
    fn departed(&self) -> Option<(Vec<&str>, &'static str)> {
        let is_out = |(id, _): &&(NodeId, NodeInfo)| !self.participants.contains_key(id);
        let out: Vec<&(NodeId, NodeInfo)> = self.world.iter().filter(is_out).collect();
        let is_dead = |id: &str| !self.knows(id) && !self.left.contains(id);
        let addrs = |is_meant: &dyn Fn(&str) -> bool| {
            let meant = out.iter().filter(|(id, _)| is_meant(id));
            let addrs: Vec<_> = meant.map(|(_, info)| info.addr.as_str()).collect();
            (!addrs.is_empty()).then_some(addrs)
        };
        let dead = addrs(&is_dead).map(|dead| (dead, "is gone"));
        let stopped = || addrs(&|id| self.left.contains(id)).map(|left| (left, "was stopped"));
        dead.or_else(stopped)
            .or_else(|| addrs(&|_| true).map(|waiting| (waiting, "is gone")))
    }
}

/// Orders nodes by `--node-rank`, then by address with its numbers compared as numbers, so that
/// `node10` comes after `node2` (pytorch/pytorch#191190).
fn order(one: &NodeInfo, other: &NodeInfo) -> Ordering {
    let by_addr = || {
        natural(&one.addr)
            .cmp(&natural(&other.addr))
            .then_with(|| one.addr.cmp(&other.addr))
    };
    one.node_rank.cmp(&other.node_rank).then_with(by_addr)
}

/// Splits a text into numbers and the texts between them, for a comparison in which a number
/// precedes a letter, as in ASCII.
fn natural(text: &str) -> Vec<(u64, &str)> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_number = first.is_ascii_digit();
        let end = rest
            .find(|c: char| c.is_ascii_digit() != is_number)
            .unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        parts.push(match part.parse() {
            Ok(number) if is_number => (number, ""),
            _ => (u64::MAX, part),
        });
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn node_info(addr: &str) -> NodeInfo {
        NodeInfo {
            addr: addr.to_owned(),
            nproc: 1,
            ..NodeInfo::default()
        }
    }

    fn complete(ids: &[&str]) -> RendezvousState {
        let mut state = RendezvousState::default();
        ids.iter().for_each(|id| state.add(id, node_info(id)));
        state.complete();
        state
    }

    fn ids(state: &RendezvousState) -> Vec<&str> {
        state.world.iter().map(|(id, _)| id.as_str()).collect()
    }

    #[test]
    fn nodes_are_ordered_by_the_numbers_in_their_names() {
        assert_eq!(
            ids(&complete(&["node10", "node2", "node1"])),
            ["node1", "node2", "node10"]
        );
        assert_eq!(
            ids(&complete(&[
                "localhost",
                "127.0.0.1",
                "10.0.0.9",
                "10.0.0.10"
            ])),
            ["10.0.0.9", "10.0.0.10", "127.0.0.1", "localhost"]
        );
    }

    #[test]
    fn a_node_rank_goes_before_the_address() {
        let mut state = RendezvousState::default();
        state.add(
            "a",
            NodeInfo {
                node_rank: 1,
                ..node_info("a")
            },
        );
        state.add("b", node_info("b"));
        state.complete();
        assert_eq!(ids(&state), ["b", "a"]);
    }

    #[test]
    fn the_next_round_begins_when_the_last_participant_has_left() {
        let mut state = complete(&["a", "b"]);
        state.remove("a");
        assert_eq!(
            (state.round, state.is_complete(), state.is_whole()),
            (0, true, false)
        );
        state.remove("b");
        assert_eq!(
            (state.round, state.is_complete(), state.expected.len()),
            (1, false, 2)
        );
    }

    #[test]
    fn those_of_the_round_before_have_their_place() {
        let mut state = complete(&["a", "b"]);
        state.remove("a");
        state.wait_list.insert("a".to_owned());
        state.remove("b");
        state.add("b", node_info("b"));
        assert_eq!(
            (state.has_place_for("c", 2), state.has_place_for("a", 2)),
            (false, true)
        );
    }
}
