//! Tests of ranks that use torch: its process group, its store client, its `@record`. More of them
//! are in `tests/conformance`.
//!
//! Importing torch takes most of the time, so one launch here tests several things.

use rig::need::{Need, need};
use rig::run::Given;

use crate::launch::{ranks, root_cause};

/// Printed by a rank after the collectives of one attempt were right.
const AGREED: &str = "collectives agreed";

fn with_fixture(rrun: Given, name: &str) -> Given {
    rrun.program([rig::fixture(name)])
}

#[test]
fn one_rank_is_a_group_and_its_recorded_exception_is_reported() {
    if !need(Need::Torch) {
        return;
    }
    let ended = with_fixture(Given::rrun(), "launch_record.py")
        .fails_with(1)
        .prints(&[AGREED, "store operations done"]);
    let root = root_cause(&ended);
    for part in [
        "rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: ",
        "/attempt_0/0/error.json\n",
        "traceback : Traceback (most recent call last):\n",
        "ValueError: recorded on purpose",
    ] {
        assert!(root.contains(part), "{part}: {root}");
    }
}

#[test]
fn two_ranks_meet_again_after_one_has_died() {
    if !need(Need::Torch) {
        return;
    }
    let rrun = ranks(2)
        .words("--max-restarts 1")
        .env("DIES_IN_ATTEMPT_0", "1");
    with_fixture(rrun, "launch_torch.py")
        .succeeds()
        .prints(&[AGREED; 4])
        .stderr_has("rank 1 exited with code 3");
}

#[test]
fn four_ranks_agree() {
    if need(Need::Torch) {
        let ended = with_fixture(ranks(4), "launch_torch.py").succeeds();
        ended.prints(&[AGREED; 4]);
    }
}
