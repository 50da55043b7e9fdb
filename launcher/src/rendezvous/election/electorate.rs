//! Who elects a host, and how many of them are enough. Pure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::rendezvous::state::{NodeId, NodeInfo, RendezvousState};

/// Where the store of a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// The node.
    pub id: NodeId,
    /// The address under which other nodes reach it.
    pub addr: String,
    /// The port of its store.
    pub port: u16,
}

/// The nodes of a round, which elect the next host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Electorate {
    /// The nodes in the order of their ranks.
    pub nodes: Vec<Contact>,
    /// The node that hosted when the round began. Half of an even number of nodes is enough with
    /// it, and without it is not.
    pub first: NodeId,
}

impl Electorate {
    /// Returns whether these nodes are enough. `retired` nodes have left for good, and do not
    /// count.
    pub fn is_quorum(&self, votes: &BTreeSet<NodeId>, retired: &BTreeSet<NodeId>) -> bool {
        let counts = |node: &&Contact| !retired.contains(&node.id);
        let all = self.nodes.iter().filter(counts).count();
        let mut voters = self.nodes.iter().filter(counts);
        let yes = voters
            .clone()
            .filter(|node| votes.contains(&node.id))
            .count();
        let has_first = voters.any(|node| node.id == self.first) && votes.contains(&self.first);
        2 * yes > all || (2 * yes == all && has_first)
    }
}

/// How much of the shared state a node has seen. States of one epoch are numbered by their one
/// store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seen {
    /// The epoch of the host.
    pub epoch: u64,
    /// The version of the state.
    pub version: u64,
}

/// What the shared state says about elections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knowledge {
    /// The age of the state.
    pub seen: Seen,
    /// The host, if it is known where its store is.
    pub host: Option<Contact>,
    /// Those who elect: the nodes of the last round that began, and those of a complete one that
    /// has not. Empty if no host can be elected.
    pub electorates: Vec<Electorate>,
    /// Nodes that have left for good.
    pub retired: BTreeSet<NodeId>,
}

impl Knowledge {
    /// Returns whether these nodes can elect a host: a quorum of each electorate.
    pub fn is_quorum(&self, votes: &BTreeSet<NodeId>) -> bool {
        let mut all = self.electorates.iter();
        !self.electorates.is_empty() && all.all(|it| it.is_quorum(votes, &self.retired))
    }
}

impl RendezvousState {
    /// Returns what this state says about elections.
    pub fn knowledge(&self) -> Knowledge {
        let pending = self.base.is_some() && self.is_complete() && !self.has_begun();
        let electorates = self.base.iter().cloned();
        Knowledge {
            seen: self.seen(),
            host: self.host.as_deref().and_then(|host| self.contact(host)),
            electorates: electorates
                .chain(self.electorate().filter(|_| pending))
                .collect(),
            retired: self.retired.clone(),
        }
    }

    /// Returns where the store of a node is.
    fn contact(&self, id: &str) -> Option<Contact> {
        let infos = self
            .world
            .iter()
            .map(|(id, info)| (id, info))
            .chain(&self.participants);
        let contacts = infos.filter_map(|(id, info)| contact(id, info));
        let base = self.base.iter().flat_map(|base| base.nodes.iter().cloned());
        contacts.chain(base).find(|contact| contact.id == id)
    }

    /// Returns how old this state is.
    pub fn seen(&self) -> Seen {
        Seen {
            epoch: self.epoch,
            version: self.version,
        }
    }

    /// Returns the electorate that the nodes of the complete round will be, if all of them can
    /// host a store. A launch in which another version of rrun takes part elects nobody.
    fn electorate(&self) -> Option<Electorate> {
        let nodes = self.world.iter().map(|(id, info)| contact(id, info));
        Some(Electorate {
            nodes: nodes.collect::<Option<_>>()?,
            first: self.host.clone()?,
        })
    }

    /// Returns whether the ranks of the complete round may start: all of its nodes know that it is
    /// complete.
    pub fn has_begun(&self) -> bool {
        let knows = |(id, _): &(NodeId, NodeInfo)| self.ready.contains(id);
        self.is_complete() && (self.electorate().is_none() || self.world.iter().all(knows))
    }

    /// Records that a node of the complete round knows its nodes. The last one makes them the
    /// electorate; if some of them cannot host, there is none.
    pub fn acknowledge(&mut self, id: &str) {
        if self.electorate().is_none() {
            self.base = None;
        }
        if self.has_begun() {
            return;
        }
        self.ready.insert(id.to_owned());
        if self.has_begun() {
            self.base = self.electorate();
            self.retired.clear();
        }
    }

    /// Returns whether the participants may complete a round: they include a quorum of the last
    /// one that began.
    pub fn has_quorum(&self) -> bool {
        let present: BTreeSet<NodeId> = self.participants.keys().cloned().collect();
        let base = self.base.as_ref();
        base.is_none_or(|base| base.is_quorum(&present, &self.retired))
    }

    /// Returns the state with which a node that was elected begins to host. The lost host is gone,
    /// so the others start a new round.
    pub fn taken_over(&self, epoch: u64, by: &str) -> RendezvousState {
        let mut next = self.clone();
        if let Some(host) = next.host.replace(by.to_owned()).filter(|host| host != by) {
            next.remove(&host);
        }
        next.epoch = epoch;
        next.version += 1;
        next
    }
}

fn contact(id: &NodeId, info: &NodeInfo) -> Option<Contact> {
    Some(Contact {
        id: id.clone(),
        addr: info.addr.clone(),
        port: info.peer_port?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn electorate(nodes: &[&str]) -> Electorate {
        let contact = |id: &&str| Contact {
            id: (*id).to_owned(),
            addr: (*id).to_owned(),
            port: 1,
        };
        Electorate {
            nodes: nodes.iter().map(contact).collect(),
            first: nodes[0].to_owned(),
        }
    }

    fn ids(ids: &[&str]) -> BTreeSet<NodeId> {
        ids.iter().map(|&id| id.to_owned()).collect()
    }

    #[test]
    fn of_two_nodes_the_host_is_enough_and_the_other_is_not() {
        let two = electorate(&["host", "a"]);
        assert!(two.is_quorum(&ids(&["host"]), &ids(&[])));
        assert!(!two.is_quorum(&ids(&["a"]), &ids(&[])));
        assert!(two.is_quorum(&ids(&["a"]), &ids(&["host"])), "it has left");
    }

    #[test]
    fn strangers_do_not_count() {
        let three = electorate(&["host", "a", "b"]);
        assert!(!three.is_quorum(&ids(&["host", "x", "y"]), &ids(&[])));
        assert!(!three.is_quorum(&ids(&[]), &ids(&["host", "a", "b"])));
    }

    #[test]
    fn two_quorums_have_a_node_in_common_whoever_has_left() {
        for size in 1..=5_usize {
            let names: Vec<String> = (0..size).map(|node| node.to_string()).collect();
            let all = electorate(&names.iter().map(String::as_str).collect::<Vec<_>>());
            let set = |bits: usize| -> BTreeSet<NodeId> {
                let is_in = |node: &usize| bits >> node & 1 == 1;
                (0..size)
                    .filter(is_in)
                    .map(|node| node.to_string())
                    .collect()
            };
            for retired in 0..1 << size {
                for (one, other) in (0..1 << size).flat_map(|a| (0..1 << size).map(move |b| (a, b)))
                {
                    // Nodes that have left do not vote, even where others have not heard of it.
                    let (one, other) = (set(one & !retired), set(other & !retired));
                    let are_quorums = all.is_quorum(&one, &set(retired))
                        && all.is_quorum(&other, &BTreeSet::new());
                    assert!(
                        !are_quorums || !one.is_disjoint(&other),
                        "{one:?} {other:?}"
                    );
                }
            }
        }
    }
}
