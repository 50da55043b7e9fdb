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
    /// Returns whether this node is one of them.
    pub fn has(&self, id: &str) -> bool {
        self.nodes.iter().any(|node| node.id == id)
    }

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
    /// Those who elect: the nodes of the last round that began, and those of later ones that were
    /// complete and may have begun. Empty if no host can be elected.
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
        Knowledge {
            seen: self.seen(),
            host: self.host.as_deref().and_then(|host| self.contact(host)),
            electorates: self.electorates().cloned().collect(),
            retired: self.retired.clone(),
        }
    }

    /// Returns the nodes that elect: a host needs a quorum of each of these. There are none before
    /// a round has begun.
    pub(in crate::rendezvous) fn electorates(&self) -> impl Iterator<Item = &Electorate> {
        let later = self.doubtful.iter().chain(&self.proposed);
        let all = self.base.iter().chain(later);
        all.filter(|_| self.base.is_some())
    }

    /// Returns where the store of a node is.
    fn contact(&self, id: &str) -> Option<Contact> {
        let infos = self
            .world
            .iter()
            .map(|(id, info)| (id, info))
            .chain(&self.participants);
        let contacts = infos.filter_map(|(id, info)| contact(id, info));
        let electors = self.electorates().flat_map(|it| it.nodes.iter().cloned());
        contacts.chain(electors).find(|contact| contact.id == id)
    }

    /// Returns how old this state is.
    pub fn seen(&self) -> Seen {
        Seen {
            epoch: self.epoch,
            version: self.version,
        }
    }

    /// Returns the electorate that the nodes of the complete round will be. A launch elects nobody
    /// before a round has begun in which all nodes can host a store; after that, those that cannot
    /// do not count.
    pub(in crate::rendezvous) fn electorate(&self) -> Option<Electorate> {
        let nodes = self.world.iter().map(|(id, info)| contact(id, info));
        let nodes: Vec<Contact> = match &self.base {
            Some(_) => nodes.flatten().collect(),
            None => nodes.collect::<Option<_>>()?,
        };
        let first = self.host.clone()?;
        Some(Electorate { nodes, first })
    }

    /// Returns whether the ranks of the complete round may start: all of its nodes know that it is
    /// complete.
    pub fn has_begun(&self) -> bool {
        self.is_complete() && self.proposed.is_none()
    }

    /// Records that a node has read that the round is complete. The last one makes the nodes of the
    /// round the only electorate.
    pub fn acknowledge(&mut self, id: &str) {
        let Some(proposed) = &self.proposed else {
            return;
        };
        self.ready.insert(id.to_owned());
        if proposed.nodes.iter().all(|it| self.ready.contains(&it.id)) {
            self.base = self.proposed.take();
            self.doubtful.clear();
            self.retired.clear();
            self.ready.clear();
        }
    }

    /// Returns whether the participants may complete a round: they include a quorum of the last
    /// one that began, whichever of the possible ones that is.
    pub fn has_quorum(&self) -> bool {
        let present: BTreeSet<NodeId> = self.participants.keys().cloned().collect();
        let mut possible = self.base.iter().chain(&self.doubtful);
        possible.all(|it| it.is_quorum(&present, &self.retired))
    }

    /// Returns the state in a later epoch of the same host, if these votes are a quorum for it.
    pub fn raised(&self, epoch: u64, votes: &BTreeSet<NodeId>) -> Option<RendezvousState> {
        let is_elected = self.epoch < epoch && self.knowledge().is_quorum(votes);
        is_elected.then(|| self.in_epoch(epoch))
    }

    /// Returns the state in a later epoch, with a version of its own. What was acknowledged
    /// earlier does not count any more, as nodes may have promised other epochs since.
    fn in_epoch(&self, epoch: u64) -> RendezvousState {
        RendezvousState {
            epoch,
            version: self.version + 1,
            ready: BTreeSet::new(),
            ..self.clone()
        }
    }

    /// Returns the state with which a node that was elected begins to host. The lost host is gone,
    /// so the others start a new round. A round that was complete may have begun at the lost host.
    pub fn taken_over(&self, epoch: u64, by: &str) -> RendezvousState {
        let mut next = self.in_epoch(epoch);
        let is_new = |round: &Electorate| !self.doubtful.contains(round);
        next.doubtful.extend(next.proposed.clone().filter(is_new));
        if let Some(host) = next.host.replace(by.to_owned()).filter(|host| host != by) {
            next.remove(&host);
        }
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

    fn info(addr: &str) -> NodeInfo {
        NodeInfo {
            addr: addr.to_owned(),
            nproc: 1,
            peer_port: Some(1),
            ..NodeInfo::default()
        }
    }

    /// Returns a state in which the round of these nodes is complete, after one of `base` began.
    /// The first of `base` hosts.
    fn complete(base: &[&str], world: &[&str]) -> RendezvousState {
        let mut state = RendezvousState {
            host: Some(base[0].to_owned()),
            base: Some(electorate(base)),
            round: 1,
            ..RendezvousState::default()
        };
        world.iter().for_each(|id| state.add(id, info(id)));
        if !world.is_empty() {
            state.complete();
        }
        state
    }

    /// Returns the ids of those who elect.
    fn electors(state: &RendezvousState) -> Vec<BTreeSet<NodeId>> {
        let nodes = |it: &Electorate| it.nodes.iter().map(|node| node.id.clone()).collect();
        state.electorates().map(nodes).collect()
    }

    #[test]
    fn a_round_begins_when_all_of_its_nodes_have_acknowledged_it() {
        let mut state = complete(&["host", "a", "b"], &["host", "a"]);
        state.acknowledge("host");
        assert!(!state.has_begun());
        assert_eq!(electors(&state).len(), 2);
        state.acknowledge("a");
        assert!(state.has_begun());
        assert_eq!(electors(&state), [ids(&["host", "a"])]);
    }

    #[test]
    fn what_was_acknowledged_in_an_earlier_epoch_does_not_count() {
        let mut state = complete(&["host", "a", "b"], &["host", "a"]);
        state.acknowledge("a");
        let mut raised = state.raised(2, &ids(&["host", "a"])).unwrap();
        raised.acknowledge("host");
        assert!(!raised.has_begun(), "a may have promised epoch 1 since");
        raised.acknowledge("a");
        assert!(raised.has_begun());
    }

    #[test]
    fn a_round_that_may_have_begun_at_the_lost_host_elects_until_another_begins() {
        let all = ["host", "a", "b", "c", "d"];
        let state = complete(&all, &["host", "a", "b"]).taken_over(1, "a");
        let mut next = state.clone();
        ["a", "b"].iter().for_each(|id| next.remove(id));
        assert_eq!((next.round, next.is_complete()), (2, false));
        assert_eq!(electors(&next), [ids(&all), ids(&["host", "a", "b"])]);
        assert_eq!(next.doubtful[0].first, "host", "half with it was enough");
        ["a", "c", "d"].iter().for_each(|id| next.add(id, info(id)));
        assert!(!next.has_quorum(), "the host may run the round with b");
        next.add("b", info("b"));
        assert!(next.has_quorum());
        next.complete();
        ["a", "b", "c", "d"]
            .iter()
            .for_each(|id| next.acknowledge(id));
        assert_eq!(electors(&next), [ids(&["a", "b", "c", "d"])]);
    }

    #[test]
    fn a_host_that_missed_a_round_goes_on_with_votes_of_its_nodes_alone() {
        let all = ["host", "a", "b", "c"];
        let mut state = complete(&all, &["a", "b", "c"]);
        let votes = ids(&["host", "a"]);
        assert!(complete(&all, &[]).raised(1, &votes).is_some());
        assert_eq!(state.raised(1, &votes), None);
        ["a", "b", "c"].iter().for_each(|id| state.acknowledge(id));
        assert_eq!(state.raised(1, &votes), None);
        assert!(state.raised(1, &ids(&["a", "b"])).is_some());
    }

    #[test]
    fn a_launch_that_elects_goes_on_to_do_so_with_a_node_that_cannot_host() {
        let all = ["host", "a", "b"];
        let mut state = complete(&all, &[]);
        let unable = NodeInfo {
            peer_port: None,
            ..info("old")
        };
        state.add("old", unable);
        ["host", "a"].iter().for_each(|id| state.add(id, info(id)));
        state.complete();
        state.acknowledge("host");
        assert!(!state.has_begun());
        state.acknowledge("a");
        assert_eq!(electors(&state), [ids(&["host", "a"])]);
        assert!(state.has_begun());
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
