//! Simulated ranks deliver to a store in memory, one after the other, and rank 0 collects.

use super::*;
use proptest::prelude::*;
use rig::memory_store::MemoryStore;

const HOUR: Duration = Duration::from_secs(3600);

/// A journal of a rank with five episodes has some three kilobytes.
const PART: usize = 3000;

fn part(rank: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + rank) as u8).collect()
}

/// Delivers the part of a rank, which then leaves.
fn delivered(store: &Store, rank: usize, part: &[u8]) {
    let label = PartLabel::of(part, None);
    deliver(store, rank, part, &label).unwrap();
    store.set(&left_key(rank), b"").unwrap();
}

/// Collects as rank 0, which has nothing itself.
fn collected(store: &Store, world: usize, until: Deadline) -> Vec<Option<Vec<u8>>> {
    let own = PartLabel::of(b"", None);
    let labels = labels(store, own, world, until).unwrap();
    let parts = parts(store, Vec::new(), &labels).unwrap();
    see_off(store, &labels, Deadline::after(Duration::from_secs(5)));
    parts
}

#[test]
fn rank_0_makes_a_few_requests_for_each_thousand_ranks() {
    for world in [16, 256, 1024, 4096, 16_384] {
        let (store, memory) = MemoryStore::new();
        for rank in 1..world {
            delivered(&store, rank, &part(rank, PART));
        }
        let before = memory.replies();
        let parts = collected(&store, world, Deadline::after(HOUR));
        let requests = memory.replies() - before;
        println!("{world} ranks: {requests} requests of rank 0");
        let is_its_own = |rank: usize| parts[rank].as_deref() == Some(&part(rank, PART));
        assert!((1..world).all(is_its_own));
        let thousands = world.div_ceil(AT_ONCE) as u64;
        assert!(requests <= 7 * thousands, "{world} ranks: {requests}");
    }
}

#[test]
fn a_node_that_is_missing_costs_a_few_requests_more() {
    let ((store, memory), world) = (MemoryStore::new(), 1024);
    let is_there = |rank: &usize| !(512..576).contains(rank);
    for rank in (1..world).filter(is_there) {
        delivered(&store, rank, &part(rank, PART));
    }
    let before = memory.replies();
    let parts = collected(&store, world, Deadline::after(Duration::from_millis(50)));
    assert!((1..world).all(|rank| parts[rank].is_some() == is_there(&rank)));
    let requests = memory.replies() - before;
    assert!(store.check(CLOSED).unwrap());
    assert!(requests < 200, "{requests}");
}

#[test]
fn a_label_that_promises_more_than_there_is_costs_only_that_part() {
    let (store, _) = MemoryStore::new();
    for rank in [1, 2, 3] {
        delivered(&store, rank, &part(rank, PART));
    }
    let label = br#"{"bytes": 1099511627776, "checksum": 0, "gpu": null}"#;
    store.set(&label_key(2), label).unwrap();
    let parts = collected(&store, 4, Deadline::after(HOUR));
    assert_eq!(
        parts.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, true, false, true]
    );
}

#[test]
fn an_empty_part_has_no_pieces_and_one_byte_more_than_a_piece_has_two() {
    let pieces = |bytes: usize| PartLabel::of(&vec![0; bytes], None).pieces();
    assert_eq!([0, PIECE_BYTES, PIECE_BYTES + 1].map(pieces), [0, 1, 2]);
}

#[test]
fn a_label_of_another_protocol_is_no_label() {
    let (store, _) = MemoryStore::new();
    delivered(&store, 1, &part(1, PART));
    store.set(&label_key(1), b"3000 1 0000002a -").unwrap();
    let parts = collected(&store, 2, Deadline::after(HOUR));
    assert_eq!(parts, [Some(Vec::new()), None]);
}

proptest! {
    #[test]
    fn a_changed_byte_does_not_fit(mut part in proptest::collection::vec(any::<u8>(), 1..50), at: usize) {
        let label = PartLabel::of(&part, None);
        let at = at % part.len();
        part[at] ^= 1;
        prop_assert!(!label.fits(&part));
    }
}
