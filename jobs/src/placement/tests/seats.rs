//! Tests which environment sits at which worker and rank.

use super::*;

/// Returns worker, GPU and number at the worker of each seat.
fn numbers(seats: &[Seat]) -> Vec<(usize, usize, usize)> {
    let each = seats.iter().map(|seat| (seat.worker, seat.gpu, seat.env));
    each.collect()
}

#[test]
fn environments_of_one_worker_are_routed_to_two_ranks() {
    let placement = on("env: 0-1, rollout: 0-3", FOUR).unwrap();
    let seats = |rank| numbers(&placement.seats(rank, 8));
    assert_eq!(seats(0), [(0, 0, 0), (0, 0, 1)]);
    assert_eq!(seats(1), [(0, 0, 2), (0, 0, 3)]);
    assert_eq!(seats(3), [(1, 1, 2), (1, 1, 3)]);
}

#[test]
fn environments_of_two_workers_are_routed_to_one_rank() {
    let placement = on("env: 0-3, rollout: 0-1", FOUR).unwrap();
    let seats = numbers(&placement.seats(1, 8));
    assert_eq!(seats, [(2, 2, 0), (2, 2, 1), (3, 3, 0), (3, 3, 1)]);
}

#[test]
fn a_worker_with_several_gpus_deals_its_environments_over_them() {
    let placement = on("env: 0-3:0-1, rollout: 0", FOUR).unwrap();
    let seats = placement.seats(0, 8);
    let gpus: Vec<_> = seats.iter().map(|seat| seat.gpu).collect();
    assert_eq!(gpus, [0, 0, 1, 1, 2, 2, 3, 3]);
}

#[test]
fn a_job_of_one_rank_sits_at_that_ranks_workers() {
    let placement = on("env: 0-3, rollout: 0-1", FOUR).unwrap();
    let home = numbers(&placement.home(1, 3));
    assert_eq!(home, [(2, 2, 0), (2, 2, 1), (3, 3, 0)]);
    let shared = on("env: 0, rollout: 0-3", FOUR).unwrap();
    assert_eq!(numbers(&shared.home(3, 1)), [(0, 0, 0)]);
    let found = numbers(&Placement::of_ranks([0, 1]).home(1, 2))[1];
    assert_eq!(found, (1, 1, 1));
}

#[test]
fn a_share_in_a_journal_may_have_any_numbers() {
    let share = Share {
        first: usize::MAX,
        count: usize::MAX,
        total: 0,
    };
    assert_eq!((share.slot(3), share.envs().len()), (None, 0));
}
