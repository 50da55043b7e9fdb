//! Tests of the protocol, with ranks that only pretend to have a GPU.

use super::*;
use tcpstore::StoreAddr;

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
    assert_eq!(absent(&labels, &parts).join("; "), note);
    assert_eq!(absent(&labels[..1], &parts[..1]), [""; 0]);
}

/// Gathers on two ranks that claim to have these GPUs, on a machine where NCCL cannot succeed.
fn pretend(gpus: [&str; 2]) -> [Gathered; 2] {
    let minute = Duration::from_secs(60);
    let connect = |port, serves| Store::connect(&StoreAddr::local(port), 2, serves, minute);
    let server = connect(0, true).unwrap();
    let client = connect(server.port(), false).unwrap();
    let gather = |store: Store, rank: usize| {
        let gathering = Gathering {
            store,
            rank,
            world: 2,
            device: Device::Cpu,
            own_gpu_each: true,
            until: Deadline::after(minute),
        };
        let gpu = Some(gpus[rank].to_owned());
        gathering.run_with(vec![rank as u8], gpu).unwrap()
    };
    let found = std::thread::scope(|scope| {
        let other = scope.spawn(|| gather(client, 1));
        [gather(server, 0), other.join().unwrap()]
    });
    assert_eq!(found[0].parts, [Some(vec![0]), Some(vec![1])]);
    assert_eq!(found[0].route, Route::Store);
    found
}

#[test]
fn where_nccl_fails_the_store_has_the_parts() {
    let notes = pretend(["host/GPU-0", "host/GPU-1"]).map(|gathered| gathered.note.unwrap());
    let why = "NCCL failed (this rank has no GPU), the store was used";
    assert_eq!(notes, [why, "NCCL failed: this rank has no GPU"]);
}

#[test]
fn ranks_that_share_a_gpu_gather_through_the_store() {
    let [_, other] = pretend(["host/GPU-0"; 2]);
    assert_eq!(other.note, None);
}

#[test]
fn work_that_ends_in_time_is_returned() {
    assert_eq!(within(Duration::from_secs(10), || 7), Some(7));
}

#[test]
fn work_that_never_ends_is_left_behind() {
    let (_keep, forever) = mpsc::channel::<()>();
    assert_eq!(
        within(Duration::from_millis(20), move || forever.recv().is_ok()),
        None
    );
}
