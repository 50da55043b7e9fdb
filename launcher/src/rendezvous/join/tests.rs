#![expect(
    clippy::disallowed_methods,
    reason = "tests need some `Instant` to count from"
)]

use proptest::prelude::*;

use super::*;
use crate::rendezvous::place::Assigned;

const SECOND: Duration = Duration::from_secs(1);

/// Nodes around one shared state, with a clock and the actions that each node returned.
struct World {
    state: State,
    members: Vec<Member>,
    /// The state as each node last saw it.
    views: Vec<State>,
    now: Instant,
    told: Vec<(usize, Action)>,
}

impl World {
    fn new(nodes: usize, min: usize, max: usize) -> World {
        let settings = Settings {
            min,
            max,
            last_call: 2 * SECOND,
            join_timeout: 100 * SECOND,
            is_fixed: false,
        };
        let member = |index| {
            let node_info = NodeInfo {
                addr: format!("node{index}"),
                node_rank: 0,
                role: "default".to_owned(),
                nproc: index + 1,
            };
            Member::new(id(index), node_info, settings)
        };
        let members = (0..nodes).map(member).collect();
        let views = vec![State::default(); nodes];
        World {
            state: State::default(),
            members,
            views,
            now: Instant::now(),
            told: Vec::new(),
        }
    }

    /// Lets one node act until it writes nothing more; its view may be stale at first.
    fn on(&mut self, node: usize, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.members[node].on(event, &self.views[node], self.now) {
                match action {
                    Action::Write(next) => {
                        assert_eq!(next.version, self.views[node].version + 1);
                        if self.views[node].version == self.state.version {
                            assert!(next.round >= self.state.round, "{next:?}");
                            self.state = *next;
                        }
                        self.views[node] = self.state.clone();
                        events.push(Event::Seen);
                    }
                    Action::Host { round } => {
                        let master = Master {
                            addr: format!("node{node}"),
                            port: 1,
                            is_agent_store: true,
                        };
                        events.push(Event::Hosted { round, master });
                    }
                    told => self.told.push((node, told)),
                }
            }
        }
    }

    /// Lets all nodes read and act until nothing changes.
    fn settle(&mut self) {
        loop {
            let before = self.state.version;
            for node in 0..self.members.len() {
                self.views[node] = self.state.clone();
                self.on(node, Event::Seen);
            }
            if self.state.version == before {
                return;
            }
        }
    }

    fn join(&mut self, nodes: &[usize]) {
        nodes.iter().for_each(|&node| self.on(node, Event::Join));
        self.settle();
    }

    fn wait(&mut self, seconds: u32) {
        self.now += seconds * SECOND;
        self.settle();
    }

    fn told(&mut self) -> Vec<(usize, Action)> {
        std::mem::take(&mut self.told)
    }

    /// Returns the nodes that have joined, each with its index and the size of the round.
    fn joined(&mut self) -> Vec<(usize, usize, usize)> {
        let place = |(node, action): (usize, Action)| match action {
            Action::Joined(place) => (node, place.node, place.nodes),
            other => panic!("node {node}: {other:?}"),
        };
        let mut joined: Vec<_> = self.told().into_iter().map(place).collect();
        joined.sort_unstable();
        joined
    }
}

fn id(node: usize) -> NodeId {
    format!("id{node}")
}

fn failure(node: usize) -> Failure {
    Failure {
        node: format!("node{node}"),
        what: "rank 1 exited with code 3".to_owned(),
    }
}

fn gone(node: usize) -> Event {
    Event::Gone(BTreeSet::from([id(node)]))
}

fn changed(node: usize, change: Change) -> (usize, Action) {
    (node, Action::Changed(change))
}

#[test]
fn with_all_nodes_here_there_is_no_last_call() {
    let mut world = World::new(2, 2, 2);
    world.join(&[0]);
    assert_eq!(world.told(), []);
    world.join(&[1]);
    assert_eq!(world.joined(), [(0, 0, 2), (1, 1, 2)]);
}

#[test]
fn enough_nodes_wait_for_the_last_call_and_no_longer() {
    let mut world = World::new(2, 1, 3);
    world.join(&[0, 1]);
    world.wait(1);
    assert_eq!(world.told(), []);
    world.wait(1);
    assert_eq!(world.joined(), [(0, 0, 2), (1, 1, 2)]);
}

#[test]
fn ranks_count_over_nodes_of_different_size() {
    let mut world = World::new(2, 2, 2);
    world.join(&[1, 0]);
    let places: Vec<_> = world.told().into_iter().map(|(_, action)| action).collect();
    let second = |action: &Action| matches!(action, Action::Joined(place) if place.assigned == Assigned(1, 3, 1, 3));
    assert!(places.iter().any(second), "{places:?}");
}

#[test]
fn a_late_node_makes_a_new_round_without_last_call() {
    let mut world = World::new(2, 1, 2);
    world.join(&[0]);
    world.wait(2);
    assert_eq!(world.joined(), [(0, 0, 1)]);
    world.join(&[1]);
    assert_eq!(world.told(), [changed(0, Change::Waiting(1))]);
    world.join(&[0]);
    assert_eq!(
        (world.joined(), world.state.restarts),
        (vec![(0, 0, 2), (1, 1, 2)], 0)
    );
}

#[test]
fn a_failure_restarts_all_nodes_and_counts_once() {
    let mut world = World::new(2, 2, 2);
    world.join(&[0, 1]);
    world.told();
    world.on(
        1,
        Event::Failed {
            failure: failure(1),
            restarts: true,
        },
    );
    world.settle();
    assert_eq!(world.told(), [changed(0, Change::Failed(failure(1)))]);
    world.on(
        0,
        Event::Failed {
            failure: failure(0),
            restarts: true,
        },
    );
    world.join(&[1]);
    assert_eq!(world.told(), [], "one is still in the old round");
    world.join(&[0]);
    assert_eq!(
        (world.joined(), world.state.restarts),
        (vec![(0, 0, 2), (1, 1, 2)], 1)
    );
}

#[test]
fn a_failure_without_restart_is_the_end_for_all() {
    let mut world = World::new(2, 2, 2);
    world.join(&[0, 1]);
    world.told();
    world.on(
        1,
        Event::Failed {
            failure: failure(1),
            restarts: false,
        },
    );
    world.settle();
    assert_eq!(
        world.told(),
        [(
            0,
            Action::Over {
                how: Closed::Failed(failure(1)),
                is_late: false
            }
        )]
    );
}

#[test]
fn the_rest_goes_on_without_a_dead_node() {
    let mut world = World::new(3, 1, 3);
    world.join(&[0, 1, 2]);
    world.told();
    world.on(0, gone(1));
    world.views[2] = world.state.clone();
    world.on(2, Event::Seen);
    let lost = Change::Lost(vec!["node1".to_owned()]);
    assert_eq!(world.told(), [changed(0, lost.clone()), changed(2, lost)]);
    world.on(0, Event::Join);
    world.on(2, Event::Join);
    world.views[0] = world.state.clone();
    world.on(0, Event::Seen);
    assert_eq!(world.told(), [], "one that may come back is waited for");
    world.now += 2 * SECOND;
    for node in [0, 2, 0] {
        world.views[node] = world.state.clone();
        world.on(node, Event::Deadline);
    }
    assert_eq!(
        (world.joined(), world.state.restarts),
        (vec![(0, 0, 2), (2, 1, 2)], 0)
    );
}

#[test]
fn who_was_taken_for_dead_hears_of_it_and_comes_again() {
    let mut world = World::new(2, 1, 2);
    world.join(&[0, 1]);
    world.told();
    world.on(0, gone(1));
    world.settle();
    assert!(world.told().contains(&changed(1, Change::Expelled)));
    world.join(&[0, 1]);
    assert_eq!(world.joined(), [(0, 0, 2), (1, 1, 2)]);
}

#[test]
fn a_spare_takes_the_place_of_a_dead_node() {
    let mut world = World::new(2, 1, 1);
    world.join(&[0]);
    world.join(&[1]);
    assert_eq!(
        (world.joined(), world.state.redundancy_list.len()),
        (vec![(0, 0, 1)], 1)
    );
    world.on(1, gone(0));
    assert_eq!(world.joined(), [(1, 0, 1)]);
}

#[test]
fn a_spare_waits_without_limit_and_goes_in_peace() {
    let mut world = World::new(2, 1, 1);
    world.join(&[0]);
    world.join(&[1]);
    (0..3).for_each(|_| world.wait(99));
    world.told();
    world.on(0, Event::Done);
    world.settle();
    let over = |is_late| Action::Over {
        how: Closed::Succeeded,
        is_late,
    };
    assert_eq!(world.told(), [(0, over(false)), (1, over(false))]);
    assert!(world.state.nodes().is_empty());
}

#[test]
fn a_node_that_comes_after_the_end_is_late() {
    let mut world = World::new(2, 1, 1);
    world.join(&[0]);
    world.on(0, Event::Done);
    world.told();
    world.join(&[1]);
    assert_eq!(
        world.told(),
        [(
            1,
            Action::Over {
                how: Closed::Succeeded,
                is_late: true
            }
        )]
    );
}

#[test]
fn nodes_that_are_done_wait_for_the_others_and_let_nobody_in() {
    let mut world = World::new(3, 2, 3);
    world.join(&[0, 1]);
    world.wait(2);
    world.told();
    world.on(0, Event::Done);
    world.join(&[2]);
    assert_eq!(world.told(), []);
    world.on(1, Event::Done);
    world.settle();
    assert_eq!(world.told().len(), 3);
}

#[test]
fn too_few_nodes_time_out() {
    let mut world = World::new(2, 2, 2);
    world.join(&[0]);
    world.wait(100);
    assert_eq!(
        (world.told(), world.state.nodes().len()),
        (vec![(0, Action::TimedOut { came: 1 })], 0)
    );
}

#[test]
fn who_leaves_by_a_signal_leaves_the_door_open() {
    let mut world = World::new(2, 1, 2);
    world.join(&[0, 1]);
    world.told();
    world.on(1, Event::Leave { closes: None });
    world.settle();
    let left = changed(0, Change::Left(vec!["node1".to_owned()]));
    assert_eq!(
        (world.told(), world.state.closed.clone()),
        (vec![(1, Action::Left), left], None)
    );
}

#[test]
fn with_fixed_nodes_one_that_was_stopped_is_not_called_gone() {
    let mut world = World::new(2, 2, 2);
    world
        .members
        .iter_mut()
        .for_each(|member| member.settings.is_fixed = true);
    world.join(&[0, 1]);
    world.told();
    world.on(1, Event::Leave { closes: None });
    world.settle();
    let failure = Failure {
        node: "node1".to_owned(),
        what: "the node was stopped".to_owned(),
    };
    let over = Action::Over {
        how: Closed::Failed(failure),
        is_late: false,
    };
    assert_eq!(world.told(), [(1, Action::Left), (0, over)]);
}

#[test]
fn who_died_is_named_before_who_was_stopped() {
    let mut world = World::new(3, 1, 3);
    world.join(&[0, 1, 2]);
    world.told();
    world.on(1, Event::Leave { closes: None });
    world.views[0] = world.state.clone();
    world.on(0, gone(2));
    assert_eq!(
        world.told()[1],
        changed(0, Change::Lost(vec!["node2".to_owned()]))
    );
}

#[test]
fn with_fixed_nodes_a_lost_one_is_the_end() {
    let mut world = World::new(2, 2, 2);
    world
        .members
        .iter_mut()
        .for_each(|member| member.settings.is_fixed = true);
    world.join(&[0, 1]);
    world.told();
    world.on(0, gone(1));
    let told = world.told();
    assert!(
        matches!(
            &told[..],
            [(
                0,
                Action::Over {
                    how: Closed::Failed(_),
                    ..
                }
            )]
        ),
        "{told:?}"
    );
}

#[test]
fn with_fixed_nodes_all_blame_the_one_that_was_lost_first() {
    let mut world = World::new(3, 3, 3);
    world
        .members
        .iter_mut()
        .for_each(|member| member.settings.is_fixed = true);
    world.join(&[0, 1, 2]);
    world.told();
    world.on(0, gone(1));
    world.settle();
    let failure = Failure {
        node: "node1".to_owned(),
        what: "the node is gone".to_owned(),
    };
    let over = Action::Over {
        how: Closed::Failed(failure),
        is_late: false,
    };
    assert_eq!(world.told(), [0, 1, 2].map(|node| (node, over.clone())));
}

#[test]
fn who_hears_late_of_a_dead_node_does_not_count_those_that_wait_already() {
    let mut world = World::new(3, 1, 3);
    world.join(&[0, 1, 2]);
    world.told();
    world.on(0, gone(1));
    world.on(0, Event::Join);
    world.views[2] = world.state.clone();
    world.on(2, Event::Seen);
    let lost = Change::Lost(vec!["node1".to_owned()]);
    assert_eq!(world.told(), [changed(0, lost.clone()), changed(2, lost)]);
}

#[derive(Clone, Debug)]
enum Step {
    Read,
    Join,
    Fail,
    Gone(usize),
    Wait(u32),
    Leave,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Read),
        4 => Just(Step::Join),
        1 => Just(Step::Fail),
        1 => (0..5_usize).prop_map(Step::Gone),
        2 => (0..4_u32).prop_map(Step::Wait),
        1 => Just(Step::Leave),
    ]
}

proptest! {
    /// Lets nodes act in any order, on views of any age; some die, fail or leave.
    #[test]
    fn every_participant_has_a_rank_of_its_own(
        steps in prop::collection::vec((0..5_usize, step()), 0..200), min in 1..3_usize, more in 0..3_usize,
    ) {
        let mut world = World::new(5, min, min + more);
        let mut rounds = std::collections::BTreeMap::<u64, Vec<(usize, usize)>>::new();
        for (node, step) in steps {
            match step {
                Step::Read => world.views[node] = world.state.clone(),
                Step::Wait(seconds) => world.now += seconds * SECOND,
                Step::Join | Step::Fail | Step::Gone(_) | Step::Leave => {}
            }
            world.on(node, match step {
                Step::Read => Event::Seen,
                Step::Wait(_) => Event::Deadline,
                Step::Join => Event::Join,
                Step::Fail => Event::Failed { failure: failure(node), restarts: true },
                Step::Gone(other) => gone(other),
                Step::Leave => Event::Leave { closes: None },
            });
            for (node, told) in world.told() {
                if let Action::Joined(place) = told {
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
        let mut world = World::new(4, 1, 4);
        for (node, step) in steps {
            match step {
                Step::Read => world.views[node] = world.state.clone(),
                Step::Join => world.on(node, Event::Join),
                Step::Fail => world.on(node, Event::Failed { failure: failure(node), restarts: true }),
                Step::Gone(other) => world.on(node, gone(other)),
                Step::Wait(seconds) => world.now += seconds * SECOND,
                Step::Leave => world.on(node, Event::Leave { closes: None }),
            }
        }
        world.told();
        world.join(&[0, 1, 2, 3]);
        for _ in 0..8 {
            world.wait(3);
            let told = world.told();
            let changed = told.into_iter().filter(|(_, action)| matches!(action, Action::Changed(_)));
            let changed: Vec<usize> = changed.map(|(node, _)| node).collect();
            world.join(&changed);
        }
        prop_assert_eq!(world.state.world.len(), 4, "{:?}", world.state);
    }
}
