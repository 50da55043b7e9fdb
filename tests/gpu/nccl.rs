//! Tests of collectives on a GPU.

use crate::dist::ranks::serve;
use crate::gpu::card::card;
use crate::gpu::ranks::PATIENCE;
use c10d::{ProcessGroup, Reduction};
use tch::{Kind, Tensor};

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_group_of_one_runs_collectives() {
    let Some(card) = card() else { return };
    let group =
        ProcessGroup::nccl(&serve().default_group("cuda"), 0, 1, card.index, PATIENCE).unwrap();
    let mut one = Tensor::ones([4], (Kind::Float, card.device()));
    group.all_reduce(&mut one, Reduction::Sum).unwrap();
    assert_eq!(one.double_value(&[0]), 1.0);
    group.broadcast(&mut one, 0).unwrap();
    assert_eq!(group.all_gather_bytes(b"alone").unwrap(), [b"alone"]);
    assert_eq!(group.all_gather_bytes(b"").unwrap(), [b""]);
    group.barrier().unwrap();
    group.close().unwrap();
}
