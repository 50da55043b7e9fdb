//! Tests which environment sits at which worker and rank.

use super::*;

#[test]
fn environments_of_one_worker_are_routed_to_two_ranks() {
    let placement = on("env: 0-1, rollout: 0-3", FOUR).unwrap();
    let seats = |rank| placement.seats(rank, 8);
    assert_eq!(
        seats(0),
        [
            Seat {
                worker: 0,
                gpu: 0,
                env: 0
            },
            Seat {
                worker: 0,
                gpu: 0,
                env: 1
            }
        ]
    );
    assert_eq!(
        seats(1),
        [
            Seat {
                worker: 0,
                gpu: 0,
                env: 2
            },
            Seat {
                worker: 0,
                gpu: 0,
                env: 3
            }
        ]
    );
    assert_eq!(
        seats(3),
        [
            Seat {
                worker: 1,
                gpu: 1,
                env: 2
            },
            Seat {
                worker: 1,
                gpu: 1,
                env: 3
            }
        ]
    );
}

#[test]
fn environments_of_two_workers_are_routed_to_one_rank() {
    let placement = on("env: 0-3, rollout: 0-1", FOUR).unwrap();
    let workers: Vec<_> = placement
        .seats(1, 8)
        .iter()
        .map(|seat| (seat.worker, seat.env))
        .collect();
    assert_eq!(workers, [(2, 0), (2, 1), (3, 0), (3, 1)]);
}

#[test]
fn a_worker_with_several_gpus_deals_its_environments_over_them() {
    let placement = on("env: 0-3:0-1, rollout: 0", FOUR).unwrap();
    let gpus: Vec<_> = placement.seats(0, 8).iter().map(|seat| seat.gpu).collect();
    assert_eq!(gpus, [0, 0, 1, 1, 2, 2, 3, 3]);
}

#[test]
fn a_job_of_one_rank_sits_at_that_ranks_workers() {
    let placement = on("env: 0-3, rollout: 0-1", FOUR).unwrap();
    let seats: Vec<_> = placement
        .home(1, 3)
        .iter()
        .map(|seat| (seat.worker, seat.gpu, seat.env))
        .collect();
    assert_eq!(seats, [(2, 2, 0), (2, 2, 1), (3, 3, 0)]);
    let shared = on("env: 0, rollout: 0-3", FOUR).unwrap();
    assert_eq!(
        shared.home(3, 1),
        [Seat {
            worker: 0,
            gpu: 0,
            env: 0
        }]
    );
    assert_eq!(
        Placement::of_ranks([0, 1]).home(1, 2)[1],
        Seat {
            worker: 1,
            gpu: 1,
            env: 1
        }
    );
}
