//! Tests of the protocol, with ranks that only pretend to have a GPU.

use super::*;
use crate::store_addr::StoreAddr;

fn label(gpu: &str) -> Option<PartLabel> {
    Some(PartLabel::of(
        b"part",
        (!gpu.is_empty()).then(|| gpu.to_owned()),
    ))
}

#[test]
fn nccl_needs_every_rank_with_a_gpu_of_its_own() {
    assert_eq!(
        why_not_nccl(&[label("a/1"), label("a/2"), label("b/1")]),
        None
    );
    assert_eq!(
        why_not_nccl(&[label("a/1"), None]).unwrap(),
        "rank 1 did not join"
    );
    assert_eq!(
        why_not_nccl(&[label("a/1"), label("")]).unwrap(),
        "rank 1 has no GPU of its own"
    );
    assert_eq!(
        why_not_nccl(&[label("a/1"), label("a/1")]).unwrap(),
        "rank 1 shares a/1"
    );
}

#[test]
fn a_damaged_part_is_not_taken() {
    let labels = [label("a/1"), label("a/2")];
    assert!(whole(vec![b"part".to_vec(), b"part".to_vec()], &labels).is_ok());
    let err = whole(vec![b"part".to_vec(), b"Part".to_vec()], &labels).unwrap_err();
    assert_eq!(err.to_string(), "the part of rank 1 came damaged");
}

#[test]
fn who_is_missing_is_named() {
    let labels = [label(""), None, label(""), None];
    let parts = [Some(vec![]), None, None, None];
    let note = "ranks 1, 3 did not deliver by the deadline; rank 2 delivered a damaged part";
    assert_eq!(absent(&labels, &parts).unwrap(), note);
    assert_eq!(absent(&labels[..1], &parts[..1]), None);
}

/// Runs a rank that claims to have a GPU of its own, on a machine where NCCL cannot succeed.
fn pretend(store: &Store, rank: usize, gpu: &str) -> Gathered {
    let participant = Participant {
        rank,
        world: 2,
        restart: 0,
        run_id: "r".to_owned(),
    };
    let until = Deadline::after(Duration::from_secs(60));
    let gathering = Gathering {
        store: store.clone(),
        participant,
        device: Device::Cpu,
        until,
    };
    gathering
        .run(vec![rank as u8], Some(gpu.to_owned()))
        .unwrap()
}

#[test]
fn where_nccl_fails_the_store_has_the_parts() {
    let addr = |port| StoreAddr {
        host: "127.0.0.1".to_owned(),
        port,
    };
    let server = Store::connect(&addr(0), 2, true, Duration::from_secs(60)).unwrap();
    let client = Store::connect(&addr(server.port()), 2, false, Duration::from_secs(60)).unwrap();
    let other = std::thread::spawn(move || pretend(&client, 1, "host/GPU-1"));
    let first = pretend(&server, 0, "host/GPU-0");
    assert_eq!(
        (first.parts, first.route),
        (vec![Some(vec![0]), Some(vec![1])], Route::Store)
    );
    assert_eq!(
        first.note.unwrap(),
        "NCCL failed (this rank has no GPU), the store was used"
    );
    assert_eq!(
        other.join().unwrap().note.unwrap(),
        "NCCL failed: this rank has no GPU"
    );
}

#[test]
fn ranks_that_share_a_gpu_gather_through_the_store() {
    let addr = |port| StoreAddr {
        host: "127.0.0.1".to_owned(),
        port,
    };
    let server = Store::connect(&addr(0), 2, true, Duration::from_secs(60)).unwrap();
    let client = Store::connect(&addr(server.port()), 2, false, Duration::from_secs(60)).unwrap();
    let other = std::thread::spawn(move || pretend(&client, 1, "host/GPU-0"));
    let first = pretend(&server, 0, "host/GPU-0");
    assert_eq!(
        (first.parts, first.route),
        (vec![Some(vec![0]), Some(vec![1])], Route::Store)
    );
    assert_eq!(other.join().unwrap().note, None);
}
