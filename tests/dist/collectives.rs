//! Tests of Gloo groups of Rust ranks.

use crate::dist::child;
use crate::dist::ranks::{PATIENCE, gloo, join, ranks, serve};
use c10d::{DistError, ProcessGroup, Reduction};
use std::process::abort;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use tch::Tensor;

/// Returns 0, 7, 14, … bytes, so that padding and an empty part both occur.
fn part(rank: usize) -> Vec<u8> {
    vec![rank as u8 + 1; 7 * rank]
}

#[test]
fn bytes_of_one_to_four_ranks_reach_all_of_them() {
    for world in 1..=4 {
        let expected: Vec<_> = (0..world).map(part).collect();
        let found = gloo(world, |rank, group| {
            group.all_gather_bytes(&part(rank)).unwrap()
        });
        assert_eq!(found, vec![expected; world]);
    }
}

#[test]
fn all_empty_parts_are_gathered() {
    assert_eq!(
        gloo(2, |_, group| group.all_gather_bytes(b"").unwrap()),
        vec![vec![b""; 2]; 2]
    );
}

#[test]
fn reductions_and_broadcast_agree_on_four_ranks() {
    let found = gloo(4, |rank, group| {
        let mine = || Tensor::from_slice(&[rank as f64 + 1.0, -(rank as f64)]);
        let (mut sum, mut max, mut copy) = (mine(), mine(), mine());
        group.all_reduce(&mut sum, Reduction::Sum).unwrap();
        group.all_reduce(&mut max, Reduction::Max).unwrap();
        group.broadcast(&mut copy, 2).unwrap();
        group.barrier().unwrap();
        [sum, max, copy].map(|tensor| Vec::<f64>::try_from(tensor).unwrap())
    });
    assert_eq!(
        found,
        vec![[vec![10.0, -6.0], vec![4.0, 0.0], vec![3.0, -2.0]]; 4]
    );
}

#[test]
fn a_rank_outside_the_group_is_refused() {
    let store = serve();
    let Err(err) = ProcessGroup::gloo(&store, 2, 2, PATIENCE) else {
        panic!("joined")
    };
    assert_eq!(err.to_string(), "there is no rank 2 in a group of 2");
    let alone = ProcessGroup::gloo(&store, 0, 1, PATIENCE).unwrap();
    let err = alone.broadcast(&mut Tensor::from(1.0), 1).unwrap_err();
    assert_eq!(err.to_string(), "there is no rank 1 in a group of 1");
}

#[test]
fn a_group_that_is_never_complete_is_a_timeout() {
    let Err(err) = ProcessGroup::gloo(&serve(), 0, 2, Duration::from_millis(300)) else {
        panic!("joined")
    };
    assert!(err.is_timeout(), "{err}");
}

#[test]
fn a_rank_that_stays_away_from_a_collective_is_a_timeout() {
    let found = ranks(2, |rank, store| {
        let group = ProcessGroup::gloo(&store, rank, 2, PATIENCE)
            .unwrap()
            .with_timeout(Duration::from_millis(200));
        let outcome = if rank == 0 {
            group.barrier()
        } else {
            store.wait("0 gave up", PATIENCE)
        };
        store.set("0 gave up", b"").unwrap();
        outcome
    });
    let [first, second] = found.try_into().unwrap();
    let err = first.unwrap_err();
    assert!(err.is_timeout(), "{err}");
    second.unwrap();
}

/// libtorch's flight recorder has a race here (SIGSEGV in one of six runs) unless the shim starts
/// collectives one at a time.
#[test]
fn groups_of_many_threads_begin_at_once() {
    let (store, start) = (serve(), Barrier::new(8));
    let begin = |thread: usize| {
        let join = |i| {
            ProcessGroup::gloo(&store.prefix(&format!("{thread}/{i}")), 0, 1, PATIENCE).unwrap()
        };
        let groups: Vec<_> = (0..20).map(join).collect();
        start.wait();
        groups.iter().for_each(|group| group.barrier().unwrap());
    };
    thread::scope(|scope| {
        (0..8).for_each(|thread| {
            drop(scope.spawn({
                let begin = &begin;
                move || begin(thread)
            }))
        })
    });
}

#[test]
fn a_rank_that_dies_is_a_lost_connection_at_once() {
    if let Some(port) = child::port() {
        let group = ProcessGroup::gloo(&join(port), 1, 2, PATIENCE).unwrap();
        group.barrier().unwrap();
        abort();
    }
    let server = serve();
    let mut peer = child::start(a_rank_that_dies_is_a_lost_connection_at_once, server.port());
    let group = ProcessGroup::gloo(&join(server.port()), 0, 2, PATIENCE).unwrap();
    group.barrier().unwrap();
    let err = group.all_gather_bytes(b"mine").unwrap_err();
    assert!(matches!(err, DistError::Lost { .. }), "{err:?}");
    assert!(!peer.wait().unwrap().success());
}
