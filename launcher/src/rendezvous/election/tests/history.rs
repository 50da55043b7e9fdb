//! What each schedule has to keep: one history of rounds, known to whoever is elected.

use crate::rendezvous::election::electorate::Electorate;
use crate::rendezvous::election::tests::world::{World, contact, id, index};
use crate::rendezvous::state::{NodeId, RendezvousState};

/// A node that has started its ranks.
#[derive(Clone, Debug)]
pub struct Started {
    pub node: usize,
    pub round: u64,
    pub world: Vec<NodeId>,
    pub first: Option<NodeId>,
}

impl Started {
    /// Returns the round of a state in which it has begun.
    pub fn of(state: &RendezvousState, node: usize) -> Started {
        let ids = state.world.iter().map(|(id, _)| id.clone());
        Started {
            node,
            round: state.round,
            world: ids.collect(),
            first: state.base.as_ref().map(|base| base.first.clone()),
        }
    }
}

impl World {
    /// Checks that who is elected knows the rounds that have begun, wherever.
    pub fn knows_all_that_began(&self, state: &RendezvousState) {
        for begun in &self.begun {
            let is_past = begun.round < state.round;
            let ids = state.world.iter().map(|(id, _)| id);
            let is_this = begun.round == state.round && ids.eq(&begun.world);
            assert!(is_past || is_this, "{begun:?} is not known: {state:?}");
        }
    }

    /// Checks that the rounds that have begun are one history: no number has two meanings, and each
    /// round includes a quorum of the one before. Ranks start in such rounds alone.
    pub fn is_one_history(&self) {
        let mut rounds = std::collections::BTreeMap::new();
        for begun in &self.begun {
            let known = rounds.entry(begun.round).or_insert(begun);
            assert_eq!(known.world, begun.world, "round {}", begun.round);
        }
        for started in &self.started {
            let known = rounds.get(&started.round).expect("it has begun");
            assert_eq!(known.world, started.world, "round {}", started.round);
            assert!(started.world.contains(&id(started.node)));
        }
        let all: Vec<&&Started> = rounds.values().collect();
        for pair in all.windows(2) {
            let base = Electorate {
                nodes: pair[0].world.iter().map(|id| contact(index(id))).collect(),
                first: pair[0].first.clone().expect("the round has begun"),
            };
            // Who is in the later round left after it began. The state may say that a node has left
            // that has not heard of it.
            let has_left =
                |id: &NodeId| self.nodes[index(id)].is_leaving && !pair[1].world.contains(id);
            let retired = pair[0]
                .world
                .iter()
                .filter(|id| has_left(id))
                .cloned()
                .collect();
            let world = pair[1].world.iter().cloned().collect();
            assert!(base.is_quorum(&world, &retired), "{pair:?}");
        }
    }
}
