//! Simulated ranks deliver to a real store, one after the other, and rank 0 collects.

use super::*;
use crate::gather::delivery::deliver;
use crate::store_addr::StoreAddr;
use std::cell::Cell;

const HOUR: Duration = Duration::from_secs(3600);

/// A journal of a rank with five episodes has some three kilobytes.
const PART: usize = 3000;

/// A store that counts the requests that have an answer.
struct Counting {
    store: Store,
    requests: Cell<usize>,
}

impl Counting {
    fn serve() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            store: Store::connect(&StoreAddr::local(0), 1, true, minute).unwrap(),
            requests: Cell::new(0),
        }
    }

    fn count(&self) -> &Store {
        self.requests.set(self.requests.get() + 1);
        &self.store
    }
}

impl Lookup for Counting {
    fn check_all(&self, keys: &[String]) -> Result<bool, DistError> {
        self.count().check_all(keys)
    }

    fn multi_get(&self, keys: &[String]) -> Result<Vec<Vec<u8>>, DistError> {
        self.count().multi_get(keys)
    }
}

impl PartStore for Counting {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), DistError> {
        self.store.set(key, value)
    }

    fn wait_all(&self, keys: &[String], deadline: Duration) -> Result<(), DistError> {
        self.count().wait_all(keys, deadline)
    }
}

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
fn collected(store: &Counting, world: usize, until: Deadline) -> Vec<Option<Vec<u8>>> {
    let own = PartLabel::of(b"", None);
    let labels = labels(store, own, world, until).unwrap();
    let parts = parts(store, Vec::new(), &labels).unwrap();
    see_off(store, &labels, Deadline::after(Duration::from_secs(5)));
    parts
}

#[test]
fn rank_0_makes_a_few_requests_for_each_thousand_ranks() {
    for world in [16, 256, 1024, 4096, 16_384] {
        let store = Counting::serve();
        for rank in 1..world {
            delivered(&store.store, rank, &part(rank, PART));
        }
        let clock = Deadline::after(HOUR);
        let parts = collected(&store, world, clock);
        let (took, requests) = (HOUR - clock.left(), store.requests.get());
        println!("{world} ranks: {requests} requests of rank 0, {took:.0?}");
        let is_its_own = |rank: usize| parts[rank].as_deref() == Some(&part(rank, PART));
        assert!((1..world).all(is_its_own));
        let thousands = world.div_ceil(AT_ONCE);
        assert!(requests <= 7 * thousands, "{world} ranks: {requests}");
    }
}

#[test]
fn a_node_that_is_missing_costs_a_few_requests_more() {
    let (store, world) = (Counting::serve(), 1024);
    let is_there = |rank: &usize| !(512..576).contains(rank);
    for rank in (1..world).filter(is_there) {
        delivered(&store.store, rank, &part(rank, PART));
    }
    let parts = collected(&store, world, Deadline::after(Duration::from_millis(50)));
    assert!((1..world).all(|rank| parts[rank].is_some() == is_there(&rank)));
    assert!(store.store.check(CLOSED).unwrap());
    let requests = store.requests.get();
    assert!(requests < 200, "{requests}");
}

#[test]
fn a_label_that_promises_more_than_there_is_costs_only_that_part() {
    let store = Counting::serve();
    for rank in [1, 2, 3] {
        delivered(&store.store, rank, &part(rank, PART));
    }
    let bytes = 1 << 40;
    let pieces = PartLabel {
        bytes,
        pieces: bytes >> 22,
        crc32: 0,
        gpu: None,
    };
    store
        .set(&label_key(2), pieces.to_string().as_bytes())
        .unwrap();
    let parts = collected(&store, 4, Deadline::after(HOUR));
    assert_eq!(
        parts.iter().map(Option::is_some).collect::<Vec<_>>(),
        [true, true, false, true]
    );
}
