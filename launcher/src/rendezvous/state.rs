//! What the nodes of an elastic launch share: one value in the store, changed by `COMPARE_SET`. Pure, and without any
//! time in it, so that clocks of nodes are never compared.
//!
//! ```text
//!               the last one expected comes | MAX | last call over
//!   gathering ─────────────────────────────────────────────────────► complete ──all done──► closed
//!   round r        participants come                                    │  │
//!       ▲                                                               │  └── failed for good ──► closed
//!       └──────────── r + 1, when the last participant has left ────────┘
//!                     (a failure, a node gone, a node waiting: everybody leaves and comes again)
//! ```
//! The names are torch's: `participants`, `wait_list` (come while a round runs), `redundancy_list` (more than MAX).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::rendezvous::place::{Assigned, MAX_LOCAL_WORLD_SIZE, Master, Place, RoleInfo, assign};

/// No launch counts writes or rounds so far, so that sums of two do not overflow.
const MAX_COUNT: u64 = 1 << 48;

/// Names one agent for its life; no other agent ever has the same.
pub type NodeId = String;

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Under which the other nodes reach it.
    pub addr: String,
    /// `--node-rank`, which goes before the address in the order of nodes.
    pub node_rank: i64,
    /// `ROLE_NAME`.
    pub role: String,
    /// Ranks on this node.
    pub nproc: usize,
}

/// A rank that ended badly, or a node that went, for the eyes of other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where.
    pub node: String,
    /// What, as `rank 3 exited with code 1`.
    pub what: String,
}

/// How a launch is over for all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Closed {
    /// Every rank of every node exited with code 0.
    Succeeded,
    /// No restart was left.
    Failed(Failure),
}

/// The shared value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The launch, under the name that its first node has given it.
    #[serde(default)]
    pub launch: String,
    /// Counts writes.
    pub version: u64,
    /// Counts rounds.
    pub round: u64,
    /// Restarts of the whole launch so far.
    pub restarts: u32,
    /// Nodes of a complete round in the order of their ranks; empty while it gathers.
    pub world: Vec<(NodeId, Card)>,
    /// Where the ranks of the complete round meet, once that listens.
    pub master: Option<Master>,
    /// Why the complete round ends.
    pub failure: Option<Failure>,
    /// Set once and for all.
    pub closed: Option<Closed>,
    /// Nodes in this round.
    pub participants: BTreeMap<NodeId, Card>,
    /// Participants whose ranks have all succeeded.
    pub done: BTreeSet<NodeId>,
    /// Nodes that wait for the next round.
    pub wait_list: BTreeSet<NodeId>,
    /// Nodes for which there is no place.
    pub redundancy_list: BTreeSet<NodeId>,
    /// The world of the round before.
    pub expected: BTreeSet<NodeId>,
    /// Nodes of the complete round that have left it for good, in order.
    #[serde(default)]
    pub left: BTreeSet<NodeId>,
}

impl State {
    /// Whether its numbers are ones that nodes can have come to. Others would overflow, and are not of our making.
    pub fn is_plausible(&self) -> bool {
        let counts = [self.version, self.round, self.restarts.into()];
        let cards = self.world.iter().map(|(_, card)| card).chain(self.participants.values());
        counts.iter().all(|count| *count <= MAX_COUNT)
            && self.restarts < u32::MAX
            && cards.into_iter().all(|card| (1..=MAX_LOCAL_WORLD_SIZE).contains(&card.nproc))
    }

    /// Whether ranks have been given.
    pub fn is_complete(&self) -> bool {
        !self.world.is_empty()
    }

    /// Whether the round has all nodes that it was completed with.
    pub fn is_whole(&self) -> bool {
        self.is_complete() && self.world.iter().all(|(id, _)| self.participants.contains_key(id))
    }

    /// Whether this node is in any list.
    pub fn knows(&self, id: &str) -> bool {
        self.participants.contains_key(id) || self.wait_list.contains(id) || self.redundancy_list.contains(id)
    }

    /// All nodes in any list.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        let lists = self.wait_list.iter().chain(&self.redundancy_list);
        self.participants.keys().chain(lists).cloned().collect()
    }

    /// Whether a node that is no participant finds a place in this gathering round. Those of the round before go first.
    pub fn has_place_for(&self, id: &str, max: usize) -> bool {
        let returning = self.wait_list.intersection(&self.expected).count();
        let reserved = if self.expected.contains(id) { 0 } else { returning };
        !self.is_complete() && self.participants.len() + reserved < max
    }

    /// Whether everybody of the round before is here again and nobody waits outside: then there is no last call.
    pub fn is_reunited(&self) -> bool {
        let is_back = |id: &NodeId| self.participants.contains_key(id);
        !self.expected.is_empty() && self.expected.iter().all(is_back) && self.wait_list.is_empty()
    }

    /// Takes a node into the gathering round.
    pub fn add(&mut self, id: &str, card: Card) {
        self.wait_list.remove(id);
        self.redundancy_list.remove(id);
        self.participants.insert(id.to_owned(), card);
    }

    /// Gives the ranks.
    pub fn complete(&mut self) {
        let mut world: Vec<_> = self.participants.clone().into_iter().collect();
        world.sort_by(|(id, card), (other_id, other)| order(card, other).then_with(|| id.cmp(other_id)));
        self.world = world;
    }

    /// Lets a node go that says good-bye.
    pub fn leave(&mut self, id: &str) {
        if self.participants.contains_key(id) && self.is_complete() {
            self.left.insert(id.to_owned());
        }
        self.remove(id);
    }

    /// Strikes a node from all lists. When the last participant of a complete round goes, the next round begins.
    pub fn remove(&mut self, id: &str) {
        self.participants.remove(id);
        self.done.remove(id);
        self.wait_list.remove(id);
        self.redundancy_list.remove(id);
        if self.is_complete() && self.participants.is_empty() && self.closed.is_none() {
            self.round += 1;
            self.expected = std::mem::take(&mut self.world).into_iter().map(|(id, _)| id).collect();
            self.master = None;
            self.failure = None;
            self.done.clear();
            self.left.clear();
        }
    }

    /// Says why the round ends, once a round; whether it did.
    pub fn fail(&mut self, failure: Failure, restarts: bool) -> bool {
        if self.failure.is_some() || self.closed.is_some() {
            return false;
        }
        if restarts {
            self.restarts += 1;
        } else {
            self.closed = Some(Closed::Failed(failure.clone()));
        }
        self.failure = Some(failure);
        true
    }

    /// Notes that all ranks of a node succeeded; the last one closes the launch.
    pub fn finish(&mut self, id: &str) {
        self.done.insert(id.to_owned());
        if self.is_whole() && self.failure.is_none() && self.world.iter().all(|(id, _)| self.done.contains(id)) {
            self.closed.get_or_insert(Closed::Succeeded);
        }
    }

    /// Index of a node in the complete round.
    pub fn node(&self, id: &str) -> Option<usize> {
        self.world.iter().position(|(known, _)| known == id)
    }

    /// The place of a node in the complete round, once its ranks have somewhere to meet.
    pub fn place(&self, id: &str) -> Option<Place> {
        let (node, master) = (self.node(id)?, self.master.clone()?);
        let info = |(rank, (_, card)): (usize, &(NodeId, Card))| RoleInfo {
            role: card.role.clone(),
            rank,
            local_world_size: card.nproc,
        };
        let assigned: Vec<Assigned> = assign(&self.world.iter().enumerate().map(info).collect::<Vec<_>>());
        let (nodes, assigned, launch) = (self.world.len(), assigned[node], self.launch.clone());
        Some(Place { launch, node, nodes, assigned, master, restarts: self.restarts, round: self.round })
    }
}

/// The order of nodes: by `--node-rank`, then by address with numbers in it taken as numbers, so that `node10` comes
/// after `node2` (pytorch/pytorch#191190).
fn order(one: &Card, other: &Card) -> Ordering {
    let by_addr = || natural(&one.addr).cmp(&natural(&other.addr)).then_with(|| one.addr.cmp(&other.addr));
    one.node_rank.cmp(&other.node_rank).then_with(by_addr)
}

/// Numbers and what stands between them, in that order of rank: a number goes before a letter, as in ASCII.
fn natural(text: &str) -> Vec<(u64, &str)> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_number = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_number).unwrap_or(rest.len());
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

    pub(crate) fn card(addr: &str) -> Card {
        Card { addr: addr.to_owned(), node_rank: 0, role: "default".to_owned(), nproc: 1 }
    }

    fn complete(ids: &[&str]) -> State {
        let mut state = State::default();
        ids.iter().for_each(|id| state.add(id, card(id)));
        state.complete();
        state
    }

    fn ids(state: &State) -> Vec<&str> {
        state.world.iter().map(|(id, _)| id.as_str()).collect()
    }

    #[test]
    fn nodes_are_ordered_by_the_numbers_in_their_names() {
        assert_eq!(ids(&complete(&["node10", "node2", "node1"])), ["node1", "node2", "node10"]);
        assert_eq!(
            ids(&complete(&["localhost", "127.0.0.1", "10.0.0.9", "10.0.0.10"])),
            ["10.0.0.9", "10.0.0.10", "127.0.0.1", "localhost"]
        );
    }

    #[test]
    fn a_node_rank_goes_before_the_address() {
        let mut state = State::default();
        state.add("a", Card { node_rank: 1, ..card("a") });
        state.add("b", card("b"));
        state.complete();
        assert_eq!(ids(&state), ["b", "a"]);
    }

    #[test]
    fn the_next_round_begins_when_the_last_participant_has_left() {
        let mut state = complete(&["a", "b"]);
        state.remove("a");
        assert_eq!((state.round, state.is_complete(), state.is_whole()), (0, true, false));
        state.remove("b");
        assert_eq!((state.round, state.is_complete(), state.expected.len()), (1, false, 2));
    }

    #[test]
    fn one_failure_a_round_counts() {
        let mut state = complete(&["a", "b"]);
        let failure = |node: &str| Failure { node: node.to_owned(), what: "x".to_owned() };
        assert!(state.fail(failure("a"), true) && !state.fail(failure("b"), true));
        assert_eq!((state.restarts, state.failure.map(|failure| failure.node)), (1, Some("a".to_owned())));
    }

    #[test]
    fn the_last_node_that_is_done_closes() {
        let mut state = complete(&["a", "b"]);
        state.finish("a");
        assert_eq!(state.closed, None);
        state.finish("b");
        assert_eq!(state.closed, Some(Closed::Succeeded));
    }

    #[test]
    fn those_of_the_round_before_have_their_place() {
        let mut state = complete(&["a", "b"]);
        state.remove("a");
        state.wait_list.insert("a".to_owned());
        state.remove("b");
        state.add("b", card("b"));
        assert_eq!((state.has_place_for("c", 2), state.has_place_for("a", 2)), (false, true));
    }
}
