//! Nodes that act in any order.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum JoinStep {
    Read,
    Join,
    Fail,
    Lose,
    Gone(usize),
    Wait(u32),
    Leave,
}

impl JoinStep {
    /// Lets a node act, on a view of any age.
    fn act(self, world: &mut SimulatedWorld, node: usize) {
        let event = match self {
            JoinStep::Read => {
                world.views[node] = world.state.clone();
                JoinEvent::Seen
            }
            JoinStep::Wait(seconds) => {
                world.now += seconds * SECOND;
                JoinEvent::Deadline
            }
            JoinStep::Join => JoinEvent::Command(Join),
            JoinStep::Fail => fails(node, true),
            JoinStep::Lose => JoinEvent::Command(LostRank {
                failure: failure(node),
            }),
            JoinStep::Gone(other) => gone(other),
            JoinStep::Leave => STOPPED,
        };
        world.on(node, event);
    }
}

fn step() -> impl Strategy<Value = JoinStep> {
    prop_oneof![
        8 => Just(JoinStep::Read),
        4 => Just(JoinStep::Join),
        1 => Just(JoinStep::Fail),
        1 => Just(JoinStep::Lose),
        1 => (0..5_usize).prop_map(JoinStep::Gone),
        2 => (0..4_u32).prop_map(JoinStep::Wait),
        1 => Just(JoinStep::Leave),
    ]
}

proptest! {
    /// Lets nodes act in any order, on views of any age; some die, fail or leave.
    #[test]
    fn every_participant_has_a_rank_of_its_own(
        steps in prop::collection::vec((0..5_usize, step()), 0..200), min in 1..3_usize, more in 0..3_usize,
    ) {
        let mut world = SimulatedWorld::new(5, min, min + more);
        let mut rounds = std::collections::BTreeMap::<u64, Vec<(usize, usize)>>::new();
        for (node, step) in steps {
            step.act(&mut world, node);
            for (node, told) in world.told() {
                if let JoinAction::Joined(place) = told {
                    prop_assert!((min..=min + more).contains(&place.nodes));
                    rounds.entry(world.views[node].round).or_default().push((place.node, place.nodes));
                }
            }
        }
        for (round, places) in rounds {
            let indices: BTreeSet<usize> = places.iter().map(|(index, _)| *index).collect();
            prop_assert_eq!(indices.len(), places.len(), "round {}", round);
            prop_assert!(places.iter().all(|(index, size)| *size == places[0].1 && index < size));
        }
    }

    /// Whatever happened before: when all nodes join, and join again when told to, they end up in
    /// one round.
    #[test]
    fn nodes_always_find_together_again(steps in prop::collection::vec((0..4_usize, step()), 0..100)) {
        let mut world = SimulatedWorld::new(4, 1, 4);
        for (node, step) in steps {
            step.act(&mut world, node);
        }
        world.told();
        world.join(&[0, 1, 2, 3]);
        for _ in 0..8 {
            world.wait(3);
            let told = world.told();
            let changed = told.into_iter().filter(|(_, action)| matches!(action, JoinAction::Changed(_)));
            let changed: Vec<usize> = changed.map(|(node, _)| node).collect();
            world.join(&changed);
        }
        prop_assert_eq!(world.state.world.len(), 4, "{:?}", world.state);
    }
}
