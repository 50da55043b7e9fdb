//! Random schedules: whatever is lost, late or dead, there is one host an epoch and one history of
//! rounds; and when a quorum can talk, it goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::rendezvous::election::ElectionEvent;
use crate::rendezvous::election::tests::random::Random;
use crate::rendezvous::election::tests::world::{SimulatedNode, World, index};
use crate::rendezvous::join::JoinEvent;
use crate::rendezvous::state::NodeId;

/// Steps of a schedule before its network is mended.
const STEPS: usize = 150;

fn time(world: &mut World, passed: Duration) {
    world.now += passed;
    for node in 0..world.nodes.len() {
        world.elect(node, ElectionEvent::Deadline);
        let is_due = world.nodes[node]
            .member
            .deadline()
            .is_some_and(|at| at <= world.now);
        if is_due && world.nodes[node].is_alive && !world.nodes[node].election.is_seeking() {
            world.join(node, JoinEvent::Deadline);
        }
    }
}

fn step(world: &mut World) {
    let size = world.nodes.len();
    let node = world.random.below(size);
    match world.random.below(32) {
        0..8 => world.sync(node),
        8..17 if !world.mail.is_empty() => {
            let at = world.random.below(world.mail.len());
            world.deliver(at);
        }
        17 if !world.mail.is_empty() => {
            let at = world.random.below(world.mail.len());
            world.mail.swap_remove(at);
        }
        18 if !world.mail.is_empty() => {
            let at = world.random.below(world.mail.len());
            world.mail.push(world.mail[at].clone());
        }
        19..23 => {
            let passed = Duration::from_millis(world.random.below(1500) as u64);
            time(world, passed);
        }
        23 | 24 => world.side[node] = world.random.below(2),
        25 => world.side.fill(0),
        26 => world.miss(node),
        27 if world.random.one_in(2) => world.loss = [0, 2, 8][world.random.below(3)],
        27 => world.delay = [0, 2, 8][world.random.below(3)],
        28 if world.nodes[node].election.is_seeking() => {
            world.nodes[node].must_join |= world.nodes[node].member.cut_off().is_some();
        }
        29 if world.random.one_in(8) => world.nodes[node].is_alive = false,
        30 if world.random.one_in(8) => world.leave(node),
        31 if world.random.one_in(2) => world.elect(node, ElectionEvent::Lost),
        _ => world.execute_late(),
    }
}

/// Lets all nodes that live talk, until these are together in a round.
fn mend(world: &mut World, survivors: &BTreeSet<NodeId>) {
    world.side.fill(0);
    (world.loss, world.delay) = (0, 0);
    for turn in 0..600 {
        // Clocks of machines never tick alike.
        let passed = 100 + world.random.below(200) as u64;
        time(world, Duration::from_millis(passed));
        for _ in 0..world.mail.len() {
            world.deliver(0);
        }
        (0..world.nodes.len()).for_each(|node| world.sync(node));
        if turn % 5 == 0 {
            (0..world.nodes.len()).for_each(|node| world.miss(node));
        }
        if turn > 10 && are_together(world, survivors) {
            return;
        }
    }
}

/// Returns whether these nodes run the same round of all of them.
fn are_together(world: &World, nodes: &BTreeSet<NodeId>) -> bool {
    let last = |id: &NodeId| world.started.iter().rev().find(|it| it.node == index(id));
    let is_whole = |id: &NodeId| {
        last(id).is_some_and(|it| {
            it.round == world.nodes[index(id)].view.round
                && it.world.iter().cloned().collect::<BTreeSet<_>>() == *nodes
        })
    };
    let rounds: BTreeSet<u64> = nodes.iter().filter_map(last).map(|it| it.round).collect();
    rounds.len() == 1 && nodes.iter().all(is_whole)
}

/// Returns the nodes that live, if one of them can be elected by them and they are enough for a
/// round.
fn survivors(world: &World, min: usize) -> Option<BTreeSet<NodeId>> {
    let living = || {
        world
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.is_alive)
    };
    let ids: BTreeSet<NodeId> = living().map(|(at, _)| format!("id{at}")).collect();
    let knows_a_peer =
        |node: &SimulatedNode| node.election.peers().keys().any(|id| ids.contains(id));
    // What others have written is not yet in the view of a host.
    let state = |node: &SimulatedNode| node.server.clone().unwrap_or_else(|| node.view.clone());
    let newest = living().map(|(_, node)| state(node).seen()).max()?;
    let can_host = |(at, node): (usize, &SimulatedNode)| {
        let known = state(node).knowledge();
        let is_elector = known
            .electorates
            .iter()
            .any(|it| it.has(&format!("id{at}")));
        (known.seen == newest && is_elector && known.is_quorum(&ids)).then_some(())
    };
    let is_enough =
        ids.len() >= min && (ids.len() == 1 || living().all(|(_, node)| knows_a_peer(node)));
    (is_enough && living().any(|it| can_host(it).is_some())).then_some(ids)
}

fn run(seed: usize) -> bool {
    let mut random = Random::new(seed as u64);
    let size = 2 + random.below(4);
    let min = 1 + random.below(size);
    let mut world = World::new(size, min, seed as u64);
    (0..3).for_each(|_| (0..size).for_each(|node| world.sync(node)));
    time(&mut world, Duration::from_secs(2));
    (0..STEPS).for_each(|_| step(&mut world));
    world.is_one_history();
    // Launchers that could not say that they leave end nevertheless.
    let leaving = world.nodes.iter_mut().filter(|node| node.is_leaving);
    leaving.for_each(|node| node.is_alive = false);
    let Some(survivors) = survivors(&world, min) else {
        return false;
    };
    mend(&mut world, &survivors);
    world.is_one_history();
    assert!(
        are_together(&world, &survivors),
        "{survivors:?} are not together\n{world}"
    );
    true
}

fn run_all(seeds: std::ops::Range<usize>) {
    let count = seeds.len();
    let mut went_on = 0;
    for seed in seeds {
        // A panic in it is reported with its seed.
        let result = std::panic::catch_unwind(|| run(seed));
        match result {
            Ok(has) => went_on += usize::from(has),
            Err(_) => panic!("schedule {seed}"),
        }
    }
    eprintln!("{count} schedules, after {went_on} of which a quorum was left and went on");
    assert!(went_on > count / 4, "{went_on} of {count}");
}

#[test]
fn there_is_one_host_an_epoch_and_one_history_of_rounds() {
    run_all(0..4_000);
}

#[test]
#[ignore = "a million schedules: minutes"]
fn there_is_one_host_an_epoch_and_one_history_of_rounds_in_a_million_schedules() {
    // `SCHEDULES=from..to` are others.
    let chosen = std::env::var("SCHEDULES").unwrap_or_default();
    let (from, to) = chosen.split_once("..").unwrap_or(("1000000", "2000000"));
    run_all(from.parse().expect("a number")..to.parse().expect("a number"));
}
