//! Rounds that begin, or may have begun, while their host is lost.

use std::time::Duration;

use crate::rendezvous::election::ElectionEvent;
use crate::rendezvous::election::tests::world::World;
use crate::rendezvous::join::JoinEvent;

const LAST_CALL: Duration = Duration::from_secs(2);

/// Returns three nodes, of which the first hosts, in their first round.
fn in_a_round() -> World {
    let mut world = World::new(3, 1, 1);
    (0..3).for_each(|_| (0..3).for_each(|node| world.sync(node)));
    assert_eq!(world.begun.len(), 1);
    world
}

/// Lets these nodes talk and wait until nothing changes.
fn settle(world: &mut World, nodes: &[usize]) {
    for _ in 0..40 {
        world.now += Duration::from_millis(300);
        for node in nodes {
            world.elect(*node, ElectionEvent::Deadline);
            if !world.nodes[*node].election.is_seeking() {
                world.sync(*node);
            }
        }
        (0..world.mail.len()).for_each(|_| world.deliver(0));
    }
}

/// The host takes the last node for dead, and the other one gathers with it for the next round.
fn gather_without_the_last(world: &mut World) {
    world.side = vec![0, 0, 1];
    world.miss(0);
    for _ in 0..3 {
        world.sync(0);
        world.sync(1);
    }
    assert_eq!(world.nodes[1].view.participants.len(), 2);
    assert!(!world.nodes[1].view.is_complete());
}

#[test]
fn a_node_that_never_read_a_round_has_not_acknowledged_it() {
    let mut world = in_a_round();
    gather_without_the_last(&mut world);
    // The node completes the round, and does not hear that it did.
    world.now += LAST_CALL;
    world.loss = 1;
    world.join(1, JoinEvent::Deadline);
    world.loss = 0;
    assert!(world.nodes[0].server.as_ref().unwrap().is_complete());
    (0..3).for_each(|_| world.sync(0));
    // So it votes as if there was none.
    world.side = vec![1, 0, 0];
    world.elect(2, ElectionEvent::Lost);
    settle(&mut world, &[1, 2]);
    assert_eq!(world.begun.len(), 2, "{:?}", world.begun);
    world.is_one_history();
}
