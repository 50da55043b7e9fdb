mod any_order;
mod fixed_nodes;

use std::time::Duration;

use jobs::time::now;

use super::*;
use crate::plan::Backend;
use crate::rendezvous::place::Assigned;

const SECOND: Duration = Duration::from_secs(1);

/// Nodes around one shared state, with a clock and the actions that each node returned.
struct SimulatedWorld {
    state: RendezvousState,
    members: Vec<Member>,
    /// The state as each node last saw it.
    views: Vec<RendezvousState>,
    now: Instant,
    told: Vec<(usize, JoinAction)>,
}

impl SimulatedWorld {
    fn new(nodes: usize, min: usize, max: usize) -> SimulatedWorld {
        let member = |index| {
            let plan = RendezvousPlan {
                backend: Backend::C10d,
                min,
                max,
                node_id: id(index),
                last_call_timeout: 2 * SECOND,
                join_timeout: 100 * SECOND,
                ..RendezvousPlan::default()
            };
            let node_info = NodeInfo {
                addr: format!("node{index}"),
                nproc: index + 1,
                ..NodeInfo::default()
            };
            Member::new(plan, node_info)
        };
        let members = (0..nodes).map(member).collect();
        let views = vec![RendezvousState::default(); nodes];
        SimulatedWorld {
            state: RendezvousState::default(),
            members,
            views,
            now: now(),
            told: Vec::new(),
        }
    }

    /// Returns nodes that are in their first round, all of them.
    fn in_a_round(nodes: usize, min: usize) -> SimulatedWorld {
        let mut world = SimulatedWorld::new(nodes, min, nodes);
        let all: Vec<usize> = (0..nodes).collect();
        world.join(&all);
        world.told();
        world
    }

    /// Returns nodes in their first round whose number is fixed.
    fn fixed(nodes: usize) -> SimulatedWorld {
        let mut world = SimulatedWorld::new(nodes, nodes, nodes);
        let members = world.members.iter_mut();
        members.for_each(|member| member.plan.backend = Backend::Static);
        let all: Vec<usize> = (0..nodes).collect();
        world.join(&all);
        world.told();
        world
    }

    /// Lets one node act until it writes nothing more; its view may be stale at first.
    fn on(&mut self, node: usize, event: JoinEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.members[node].on(event, &self.views[node], self.now) {
                match action {
                    JoinAction::Write(next) => {
                        assert_eq!(next.version, self.views[node].version + 1);
                        if self.views[node].version == self.state.version {
                            assert!(next.round >= self.state.round, "{next:?}");
                            self.state = *next;
                        }
                        self.views[node] = self.state.clone();
                        events.push(JoinEvent::Seen);
                    }
                    JoinAction::Host { round } => {
                        let master = Master {
                            addr: format!("node{node}"),
                            port: 1,
                            is_agent_store: true,
                        };
                        events.push(JoinEvent::Hosted { round, master });
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
                self.on(node, JoinEvent::Seen);
            }
            if self.state.version == before {
                return;
            }
        }
    }

    fn join(&mut self, nodes: &[usize]) {
        nodes
            .iter()
            .for_each(|&node| self.on(node, JoinEvent::Command(Join)));
        self.settle();
    }

    /// Lets one node see the newest state.
    fn look(&mut self, node: usize) {
        self.views[node] = self.state.clone();
        self.on(node, JoinEvent::Seen);
    }

    fn wait(&mut self, seconds: u32) {
        self.now += seconds * SECOND;
        self.settle();
    }

    fn told(&mut self) -> Vec<(usize, JoinAction)> {
        std::mem::take(&mut self.told)
    }

    /// Returns the nodes that have joined, each with its index and the size of the round.
    fn joined(&mut self) -> Vec<(usize, usize, usize)> {
        let place = |(node, action): (usize, JoinAction)| match action {
            JoinAction::Joined(place) => (node, place.node, place.nodes),
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

fn failure(node: usize) -> NodeFailure {
    format!("node{node}: rank 1 exited with code 3")
}

fn gone(node: usize) -> JoinEvent {
    JoinEvent::Gone(BTreeSet::from([id(node)]))
}

fn changed(node: usize, why: &str) -> (usize, JoinAction) {
    (node, JoinAction::Changed(why.to_owned()))
}

fn fails(node: usize, restarts: bool) -> JoinEvent {
    let failure = failure(node);
    JoinEvent::Command(Failed { failure, restarts })
}

fn lost(node: usize) -> String {
    format!("node node{node} is gone; the others start a new round")
}

fn over(node: usize, how: RendezvousClosed) -> (usize, JoinAction) {
    let is_late = false;
    (node, JoinAction::Over { how, is_late })
}

fn failed(node: usize, what: &str) -> RendezvousClosed {
    RendezvousClosed::Failed(format!("node{node}: {what}"))
}

const STOPPED: JoinEvent = JoinEvent::Command(Leave { why: None });

#[test]
fn with_all_nodes_here_there_is_no_last_call() {
    let mut world = SimulatedWorld::new(2, 2, 2);
    world.join(&[0]);
    assert_eq!(world.told(), []);
    world.join(&[1]);
    assert_eq!(world.joined(), [(0, 0, 2), (1, 1, 2)]);
}

#[test]
fn enough_nodes_wait_for_the_last_call_and_no_longer() {
    let mut world = SimulatedWorld::new(2, 1, 3);
    world.join(&[0, 1]);
    world.wait(1);
    assert_eq!(world.told(), []);
    world.wait(1);
    assert_eq!(world.joined(), [(0, 0, 2), (1, 1, 2)]);
}

#[test]
fn ranks_count_over_nodes_of_different_size() {
    let mut world = SimulatedWorld::new(2, 2, 2);
    world.join(&[1, 0]);
    let places: Vec<_> = world.told().into_iter().map(|(_, action)| action).collect();
    let second = |action: &JoinAction| matches!(action, JoinAction::Joined(place) if place.assigned == Assigned(1, 3, 1, 3));
    assert!(places.iter().any(second), "{places:?}");
}

#[test]
fn a_late_node_makes_a_new_round_without_last_call() {
    let mut world = SimulatedWorld::new(2, 1, 2);
    world.join(&[0]);
    world.wait(2);
    assert_eq!(world.joined(), [(0, 0, 1)]);
    world.join(&[1]);
    assert_eq!(
        world.told(),
        [changed(0, "waiting to join: 1 node; all start a new round")]
    );
    world.join(&[0]);
    assert_eq!(
        (world.joined(), world.state.restarts),
        (vec![(0, 0, 2), (1, 1, 2)], 0)
    );
}

#[test]
fn a_failure_restarts_all_nodes_and_counts_once() {
    let mut world = SimulatedWorld::in_a_round(2, 2);
    world.on(1, fails(1, true));
    world.settle();
    assert_eq!(
        world.told(),
        [changed(0, &format!("{}; all nodes restart", failure(1)))]
    );
    world.on(0, fails(0, true));
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
    let mut world = SimulatedWorld::in_a_round(2, 2);
    world.on(1, fails(1, false));
    world.settle();
    let end = RendezvousClosed::Failed(failure(1));
    assert_eq!(world.told(), [over(0, end)]);
}

#[test]
fn the_rest_goes_on_without_a_dead_node() {
    let mut world = SimulatedWorld::in_a_round(3, 1);
    world.on(0, gone(1));
    world.look(2);
    assert_eq!(world.told(), [0, 2].map(|node| changed(node, &lost(1))));
    world.on(0, JoinEvent::Command(Join));
    world.on(2, JoinEvent::Command(Join));
    world.look(0);
    assert_eq!(world.told(), [], "one that may come back is waited for");
    world.now += 2 * SECOND;
    for node in [0, 2, 0] {
        world.views[node] = world.state.clone();
        world.on(node, JoinEvent::Deadline);
    }
    assert_eq!(
        (world.joined(), world.state.restarts),
        (vec![(0, 0, 2), (2, 1, 2)], 0)
    );
}

#[test]
fn who_was_taken_for_dead_hears_of_it_and_comes_again() {
    let mut world = SimulatedWorld::in_a_round(2, 1);
    world.on(0, gone(1));
    world.settle();
    let expelled = "the other nodes considered this one dead; it joins them again";
    assert!(world.told().contains(&changed(1, expelled)));
    world.join(&[0, 1]);
    assert_eq!(world.joined(), [(0, 0, 2), (1, 1, 2)]);
}

#[test]
fn a_spare_takes_the_place_of_a_dead_node() {
    let mut world = SimulatedWorld::new(2, 1, 1);
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
    let mut world = SimulatedWorld::new(2, 1, 1);
    world.join(&[0]);
    world.join(&[1]);
    (0..3).for_each(|_| world.wait(99));
    world.told();
    world.on(0, JoinEvent::Command(Done));
    world.settle();
    let ends = [0, 1].map(|node| over(node, RendezvousClosed::Succeeded));
    assert_eq!(world.told(), ends);
    assert!(world.state.nodes().is_empty());
}

#[test]
fn a_node_that_comes_after_the_end_is_late() {
    let mut world = SimulatedWorld::new(2, 1, 1);
    world.join(&[0]);
    world.on(0, JoinEvent::Command(Done));
    world.told();
    world.join(&[1]);
    let how = RendezvousClosed::Succeeded;
    let is_late = true;
    assert_eq!(world.told(), [(1, JoinAction::Over { how, is_late })]);
}

#[test]
fn nodes_that_are_done_wait_for_the_others_and_let_nobody_in() {
    let mut world = SimulatedWorld::new(3, 2, 3);
    world.join(&[0, 1]);
    world.wait(2);
    world.told();
    world.on(0, JoinEvent::Command(Done));
    world.join(&[2]);
    assert_eq!(world.told(), []);
    world.on(1, JoinEvent::Command(Done));
    world.settle();
    assert_eq!(world.told().len(), 3);
}

#[test]
fn a_lost_rank_fails_all_nodes_when_all_are_done() {
    let mut world = SimulatedWorld::in_a_round(2, 2);
    world.on(
        1,
        JoinEvent::Command(LostRank {
            failure: failure(1),
        }),
    );
    world.on(1, JoinEvent::Command(Done));
    world.settle();
    assert_eq!(world.told(), [], "the other node continues");
    world.on(0, JoinEvent::Command(Done));
    world.settle();
    let end = RendezvousClosed::Failed(failure(1));
    let ends = [0, 1].map(|node| over(node, end.clone()));
    assert_eq!(world.told(), ends);
}

#[test]
fn a_rank_that_was_lost_has_another_chance_in_the_next_round() {
    let mut world = SimulatedWorld::new(2, 2, 2);
    world.join(&[0, 1]);
    world.on(
        1,
        JoinEvent::Command(LostRank {
            failure: failure(1),
        }),
    );
    world.join(&[0]);
    world.join(&[1]);
    world.told();
    for node in [0, 1] {
        world.on(node, JoinEvent::Command(Done));
    }
    world.settle();
    assert_eq!(world.state.closed, Some(RendezvousClosed::Succeeded));
}

#[test]
fn too_few_nodes_time_out() {
    let mut world = SimulatedWorld::new(2, 2, 2);
    world.join(&[0]);
    world.wait(100);
    assert_eq!(
        (world.told(), world.state.nodes().len()),
        (vec![(0, JoinAction::TimedOut { came: 1 })], 0)
    );
}

#[test]
fn who_leaves_by_a_signal_leaves_the_door_open() {
    let mut world = SimulatedWorld::in_a_round(2, 1);
    world.on(1, STOPPED);
    world.settle();
    let left = changed(0, "node node1 was stopped; the others start a new round");
    assert_eq!(
        (world.told(), world.state.closed.clone()),
        (vec![(1, JoinAction::Left), left], None)
    );
}
