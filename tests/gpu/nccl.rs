//! Tests of collectives on a GPU.

use crate::dist::ranks::serve;
use crate::gpu::card::card;
use crate::gpu::ranks::PATIENCE;
use tch::{Kind, Tensor};
use torchlib::nccl::{NcclGroup, version};

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_group_of_one_runs_collectives() {
    let Some(card) = card() else { return };
    assert!(version().unwrap() >= 22_800);
    let group = NcclGroup::join(&serve(), 0, 1, card.index, PATIENCE).unwrap();
    let mut one = Tensor::ones([4], (Kind::Float, card.device()));
    group.all_reduce_sum(&mut one).unwrap();
    assert_eq!(one.double_value(&[0]), 1.0);
    assert_eq!(group.all_gather_bytes(b"alone").unwrap(), [b"alone"]);
    assert_eq!(group.all_gather_bytes(b"").unwrap(), [b""]);
    group.close().unwrap();
    let ended = group.all_gather_bytes(b"late").unwrap_err();
    assert_eq!(ended.to_string(), "NCCL: the group has ended");
}
