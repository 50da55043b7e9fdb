#![expect(
    clippy::disallowed_methods,
    reason = "tests need some `Instant` to count from"
)]

mod history;
mod random;
mod rounds;
mod schedules;
mod world;

use super::*;
use crate::rendezvous::election::electorate::{Electorate, Seen};

fn contact(id: &str) -> Contact {
    Contact {
        id: id.to_owned(),
        addr: id.to_owned(),
        port: 1,
    }
}

fn knowledge(nodes: &[&str], version: u64) -> Knowledge {
    let seen = Seen { epoch: 0, version };
    let electorate = Electorate {
        nodes: nodes.iter().map(|id| contact(id)).collect(),
        first: nodes[0].to_owned(),
    };
    Knowledge {
        seen,
        host: Some(contact(nodes[0])),
        electorates: vec![electorate],
        retired: BTreeSet::new(),
    }
}

/// Returns the node `id` of these, whose first hosts.
fn node(id: &str, nodes: &[&str], now: Instant) -> Election {
    let mut election = Election::new(contact(id), "launch".to_owned(), id == nodes[0]);
    election.learn(knowledge(nodes, 5), now);
    election
}

fn from(id: &str, promised: u64, ballot: Ballot) -> ElectionEvent {
    ElectionEvent::Received(Message {
        launch: "launch".to_owned(),
        from: contact(id),
        promised,
        seen: Seen {
            epoch: 0,
            version: 5,
        },
        ballot,
    })
}

/// Returns what was sent to whom.
fn sent(actions: &[ElectionAction]) -> Vec<(&str, &Ballot)> {
    actions.iter().filter_map(ballot).collect()
}

fn ballot(action: &ElectionAction) -> Option<(&str, &Ballot)> {
    match action {
        ElectionAction::Send { to, message } => Some((to.id.as_str(), &message.ballot)),
        ElectionAction::Follow { .. }
        | ElectionAction::Close
        | ElectionAction::Host { .. }
        | ElectionAction::Raise { .. } => None,
    }
}

const THREE: [&str; 3] = ["host", "a", "b"];

#[test]
fn the_lowest_rank_that_is_left_is_elected_by_a_quorum() {
    let now = Instant::now();
    let (mut a, mut b) = (node("a", &THREE, now), node("b", &THREE, now));
    a.on(ElectionEvent::Lost, now);
    b.on(ElectionEvent::Lost, now);
    assert!(a.deadline() < b.deadline());
    let polls = a.on(ElectionEvent::Deadline, now + STEP);
    assert_eq!(
        sent(&polls),
        [("b", &Ballot::Poll), ("host", &Ballot::Poll)]
    );
    let said = b.on(from("a", 0, Ballot::Poll), now + STEP);
    assert_eq!(sent(&said), [("a", &Ballot::Willing)]);
    let asks = a.on(from("b", 0, Ballot::Willing), now + STEP);
    assert!(
        sent(&asks).contains(&("b", &Ballot::Ask { epoch: 1 })),
        "{asks:?}"
    );
    let votes = b.on(from("a", 1, Ballot::Ask { epoch: 1 }), now + STEP);
    assert_eq!(sent(&votes), [("a", &Ballot::Vote { epoch: 1 })]);
    let won = a.on(from("b", 1, Ballot::Vote { epoch: 1 }), now + STEP);
    assert_eq!(won[0], ElectionAction::Host { epoch: 1 });
    let follow = b.on(from("a", 1, Ballot::Host { epoch: 1 }), now + STEP);
    let host = contact("a");
    assert_eq!(follow, [ElectionAction::Follow { host, epoch: 1 }]);
}

#[test]
fn who_reaches_the_host_replaces_nobody() {
    let now = Instant::now();
    let mut b = node("b", &THREE, now);
    let host = contact("host");
    let follows = Ballot::Follows { host, epoch: 0 };
    let said = b.on(from("a", 0, Ballot::Poll), now);
    assert_eq!(sent(&said), [("a", &follows)]);
    assert_eq!(b.on(from("a", 1, Ballot::Ask { epoch: 1 }), now), []);
}

#[test]
fn nobody_votes_for_two_in_one_epoch() {
    let now = Instant::now();
    let mut b = node("b", &["host", "a", "b", "c", "d"], now);
    b.on(ElectionEvent::Lost, now);
    assert_eq!(b.on(from("a", 1, Ballot::Ask { epoch: 1 }), now).len(), 1);
    assert_eq!(b.on(from("c", 1, Ballot::Ask { epoch: 1 }), now), []);
    let again = b.on(from("a", 1, Ballot::Ask { epoch: 1 }), now);
    assert_eq!(again.len(), 1, "the vote may have been lost");
}

#[test]
fn nobody_votes_for_who_has_seen_less() {
    let now = Instant::now();
    let mut b = node("b", &THREE, now);
    b.learn(knowledge(&THREE, 6), now);
    b.on(ElectionEvent::Lost, now);
    assert_eq!(b.on(from("a", 0, Ballot::Poll), now), []);
    assert_eq!(b.on(from("a", 1, Ballot::Ask { epoch: 1 }), now), []);
}

#[test]
fn the_other_of_two_nodes_is_never_elected() {
    let now = Instant::now();
    let mut a = node("a", &["host", "a"], now);
    a.on(ElectionEvent::Lost, now);
    for second in 1..100 {
        let said = a.on(
            ElectionEvent::Deadline,
            now + second * Duration::from_secs(1),
        );
        let only_polls = |(_, ballot): &(&str, &Ballot)| **ballot == Ballot::Poll;
        assert!(sent(&said).iter().all(only_polls), "{said:?}");
    }
    assert!(a.is_seeking());
}

#[test]
fn a_node_that_promised_another_epoch_in_vain_gets_its_host_back() {
    let now = Instant::now();
    let (mut host, mut a) = (node("host", &THREE, now), node("a", &THREE, now));
    // Node b has promised epoch 1, and the candidate got no other vote.
    let asks = host.on(from("b", 1, Ballot::Seek), now);
    assert!(
        sent(&asks).contains(&("a", &Ballot::Ask { epoch: 2 })),
        "{asks:?}"
    );
    let votes = a.on(from("host", 2, Ballot::Ask { epoch: 2 }), now);
    assert_eq!(sent(&votes), [("host", &Ballot::Vote { epoch: 2 })]);
    let won = host.on(from("a", 2, Ballot::Vote { epoch: 2 }), now);
    let votes = ["a", "host"].map(str::to_owned).into();
    assert_eq!(won, [ElectionAction::Raise { epoch: 2, votes }]);
}

#[test]
fn a_host_that_was_cut_off_follows_its_successor() {
    let now = Instant::now();
    let mut host = node("host", &THREE, now);
    let follow = host.on(from("a", 1, Ballot::Host { epoch: 1 }), now);
    let successor = contact("a");
    assert_eq!(
        follow,
        [ElectionAction::Follow {
            host: successor,
            epoch: 1
        }]
    );
    assert!(!host.accepts(0));
}

#[test]
fn a_host_whose_successor_is_lost_votes_with_those_who_knew_it() {
    let now = Instant::now();
    let mut host = node("host", &THREE, now);
    let seen = Seen {
        epoch: 1,
        version: 6,
    };
    let ElectionEvent::Received(message) = from("a", 1, Ballot::Poll) else {
        unreachable!("it is a message")
    };
    let poll = ElectionEvent::Received(Message { seen, ..message });
    assert_eq!(host.on(poll.clone(), now)[0], ElectionAction::Close);
    assert_eq!(sent(&host.on(poll, now)), [("a", &Ballot::Willing)]);
}

#[test]
fn an_older_epoch_is_not_followed() {
    let now = Instant::now();
    let mut b = node("b", &THREE, now);
    b.on(ElectionEvent::Lost, now);
    b.on(from("a", 2, Ballot::Ask { epoch: 2 }), now);
    let said = b.on(from("host", 1, Ballot::Host { epoch: 1 }), now);
    assert_eq!(sent(&said), [("host", &Ballot::Seek)]);
    assert!(b.is_seeking() && !b.accepts(1));
}

#[test]
fn another_launch_has_no_say() {
    let now = Instant::now();
    let mut b = node("b", &THREE, now);
    b.on(ElectionEvent::Lost, now);
    let ElectionEvent::Received(message) = from("a", 0, Ballot::Poll) else {
        unreachable!("it is a message")
    };
    let launch = "another".to_owned();
    let foreign = ElectionEvent::Received(Message { launch, ..message });
    assert_eq!(b.on(foreign, now), []);
}

#[test]
fn an_epoch_that_nobody_reaches_is_not_believed() {
    let now = Instant::now();
    let mut b = node("b", &THREE, now);
    b.on(ElectionEvent::Lost, now);
    let ballot = Ballot::Ask { epoch: u64::MAX };
    assert_eq!(b.on(from("a", u64::MAX, ballot), now), []);
}
