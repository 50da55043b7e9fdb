//! Tests of the gather at the end of an evaluation, with one process per rank: by NCCL if each has
//! a GPU, otherwise through the store.

use crate::dist::ranks::serve;
use crate::gpu::card::card;
use crate::gpu::ranks::{PATIENCE, Seat, all_succeed, seat, start};
use tch::Device;
use tcpstore::Deadline;
use torchlib::{Gathered, Gathering, Route, cuda};

/// Maximum number of ranks in the test with several GPUs.
const MOST: usize = 4;

/// Returns the part of a rank: rank 0 has nothing, the others some megabytes of different sizes.
fn part(rank: usize) -> Vec<u8> {
    (0..rank * 3_000_001)
        .map(|i| (i * 31 + rank) as u8)
        .collect()
}

fn take_part(seat: &Seat) -> Gathered {
    cuda::load().unwrap().select(seat.card).unwrap();
    let gathering = Gathering {
        store: seat.store.prefix("rrun/gather/gpu/0"),
        rank: seat.rank,
        world: seat.world,
        device: Device::Cuda(seat.card),
        own_gpu_each: true,
        until: Deadline::after(PATIENCE),
    };
    gathering.run(part(seat.rank)).unwrap()
}

/// Checks that rank 0 has every part, and the others their own.
fn has_its_parts(seat: &Seat, gathered: &Gathered) {
    let is_mine = |rank: usize| seat.rank == 0 || rank == seat.rank;
    let expected: Vec<_> = (0..seat.world)
        .map(|rank| is_mine(rank).then(|| part(rank)))
        .collect();
    assert!(
        gathered.parts == expected,
        "rank {}: parts differ",
        seat.rank
    );
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_ranks_with_a_card_each_gather_by_nccl() {
    if let Some(seat) = seat() {
        let gathered = take_part(&seat);
        assert_eq!((gathered.route, &gathered.note), (Route::Nccl, &None));
        has_its_parts(&seat, &gathered);
        return;
    }
    let Some(card) = card() else { return };
    let count = card.cuda.device_count().unwrap();
    if count < 2 {
        println!("skipped: {count} card, 2 are needed");
        return;
    }
    let (store, world) = (serve(), count.min(MOST));
    let test = gpu_ranks_with_a_card_each_gather_by_nccl;
    let started = (0..world).map(|rank| start(test, &store, (rank, world), rank));
    all_succeed(started.collect());
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_ranks_on_one_card_gather_through_the_store_and_say_so() {
    if let Some(seat) = seat() {
        let gathered = take_part(&seat);
        assert_eq!(gathered.route, Route::Store);
        has_its_parts(&seat, &gathered);
        if seat.rank == 0 {
            let note = gathered.note.unwrap();
            println!("{note}");
            assert!(
                note.starts_with("NCCL was not used: rank 1 shares ") && note.contains("GPU-"),
                "{note}"
            );
        }
        return;
    }
    let Some(card) = card() else { return };
    let store = serve();
    let test = gpu_ranks_on_one_card_gather_through_the_store_and_say_so;
    let started = (0..2).map(|rank| start(test, &store, (rank, 2), card.index));
    all_succeed(started.collect());
}
