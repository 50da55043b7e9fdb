//! Nodes that die or leave, also where their number is fixed.

use super::*;

#[test]
fn with_fixed_nodes_one_that_was_stopped_is_not_called_gone() {
    let mut world = SimulatedWorld::fixed(2);
    world.on(1, STOPPED);
    world.settle();
    let end = over(0, failed(1, "the node was stopped"));
    assert_eq!(world.told(), [(1, JoinAction::Left), end]);
}

#[test]
fn who_died_is_named_before_who_was_stopped() {
    let mut world = SimulatedWorld::in_a_round(3, 1);
    world.on(1, STOPPED);
    world.views[0] = world.state.clone();
    world.on(0, gone(2));
    assert_eq!(world.told()[1], changed(0, &lost(2)));
}

#[test]
fn with_fixed_nodes_a_lost_one_is_the_end_and_all_blame_the_first() {
    let mut world = SimulatedWorld::fixed(3);
    world.on(0, gone(1));
    world.settle();
    let end = failed(1, "the node is gone");
    let ends = [0, 1, 2].map(|node| over(node, end.clone()));
    assert_eq!(world.told(), ends);
}

#[test]
fn who_hears_late_of_a_dead_node_does_not_count_those_that_wait_already() {
    let mut world = SimulatedWorld::in_a_round(3, 1);
    world.on(0, gone(1));
    world.on(0, JoinEvent::Command(Join));
    world.look(2);
    assert_eq!(world.told(), [0, 2].map(|node| changed(node, &lost(1))));
}
