//! Nodes that die or leave where their number is fixed.

use super::*;

#[test]
fn with_fixed_nodes_one_that_was_stopped_is_not_called_gone() {
    let mut world = SimulatedWorld::new(2, 2, 2);
    world
        .members
        .iter_mut()
        .for_each(|member| member.settings.is_fixed = true);
    world.join(&[0, 1]);
    world.told();
    world.on(1, JoinEvent::Leave { closes: None });
    world.settle();
    let failure = NodeFailure {
        node: "node1".to_owned(),
        what: "the node was stopped".to_owned(),
    };
    let over = JoinAction::Over {
        how: RendezvousClosed::Failed(failure),
        is_late: false,
    };
    assert_eq!(world.told(), [(1, JoinAction::Left), (0, over)]);
}

#[test]
fn who_died_is_named_before_who_was_stopped() {
    let mut world = SimulatedWorld::new(3, 1, 3);
    world.join(&[0, 1, 2]);
    world.told();
    world.on(1, JoinEvent::Leave { closes: None });
    world.views[0] = world.state.clone();
    world.on(0, gone(2));
    assert_eq!(
        world.told()[1],
        changed(0, RoundChange::Lost(vec!["node2".to_owned()]))
    );
}

#[test]
fn with_fixed_nodes_a_lost_one_is_the_end() {
    let mut world = SimulatedWorld::new(2, 2, 2);
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
                JoinAction::Over {
                    how: RendezvousClosed::Failed(_),
                    ..
                }
            )]
        ),
        "{told:?}"
    );
}

#[test]
fn with_fixed_nodes_all_blame_the_one_that_was_lost_first() {
    let mut world = SimulatedWorld::new(3, 3, 3);
    world
        .members
        .iter_mut()
        .for_each(|member| member.settings.is_fixed = true);
    world.join(&[0, 1, 2]);
    world.told();
    world.on(0, gone(1));
    world.settle();
    let failure = NodeFailure {
        node: "node1".to_owned(),
        what: "the node is gone".to_owned(),
    };
    let over = JoinAction::Over {
        how: RendezvousClosed::Failed(failure),
        is_late: false,
    };
    assert_eq!(world.told(), [0, 1, 2].map(|node| (node, over.clone())));
}

#[test]
fn who_hears_late_of_a_dead_node_does_not_count_those_that_wait_already() {
    let mut world = SimulatedWorld::new(3, 1, 3);
    world.join(&[0, 1, 2]);
    world.told();
    world.on(0, gone(1));
    world.on(0, JoinEvent::Join);
    world.views[2] = world.state.clone();
    world.on(2, JoinEvent::Seen);
    let lost = RoundChange::Lost(vec!["node1".to_owned()]);
    assert_eq!(world.told(), [changed(0, lost.clone()), changed(2, lost)]);
}
