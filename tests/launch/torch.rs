//! Tests of ranks that use torch: its process group, its store client, its `@record`.
//!
//! Importing torch takes most of the time, so one launch here tests several things.

use crate::launch::command::Rrun;

fn ranks(nproc: usize) -> Rrun {
    Rrun::new().nproc(nproc).fixture("launch_torch.py")
}

/// Printed by a rank after the collectives of one attempt were right.
const AGREED: &str = "collectives agreed";

#[test]
fn one_rank_is_a_group_and_its_recorded_exception_is_reported() {
    let ended = Rrun::new()
        .fixture("launch_record.py")
        .fails_with(1)
        .prints(&[AGREED, "store operations done"]);
    let root = ended.root_cause();
    assert!(
        root.contains("rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: "),
        "{root}"
    );
    assert!(root.contains("/attempt_0/0/error.json\n"), "{root}");
    assert!(
        root.contains("traceback : Traceback (most recent call last):\n"),
        "{root}"
    );
    assert!(root.contains("ValueError: recorded on purpose"), "{root}");
}

#[test]
fn two_ranks_meet_again_after_one_has_died() {
    let ended = ranks(2)
        .env("DIES_IN_ATTEMPT_0", "1")
        .max_restarts(1)
        .succeeds();
    ended
        .prints(&[AGREED; 4])
        .stderr_has("rank 1 exited with code 3");
}

#[test]
fn three_ranks_agree() {
    ranks(3).succeeds().prints(&[AGREED; 3]);
}

#[test]
fn four_ranks_agree() {
    ranks(4).succeeds().prints(&[AGREED; 4]);
}
