//! Tests of the rank under another launcher, and without one.

use std::path::Path;

use crate::eval::command::{Eval, binaries, job};

fn rank() -> String {
    binaries().join("rrun-rank").to_string_lossy().into_owned()
}

#[test]
fn it_runs_under_torchrun() {
    let torchrun = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/torchrun");
    let words = [
        torchrun.to_str().unwrap(),
        "--standalone",
        "--nproc-per-node",
        "2",
        "--no-python",
        &rank(),
    ];
    let eval =
        Eval::new(&[job("reach", 2, 1), job("push", 2, 1)]).launched_by(&words.map(str::to_owned));
    eval.run().succeeds();
    let report = eval.report();
    assert!(report.complete());
    assert_eq!(
        (report.run.world_size, report.run.gathered_by.as_str()),
        (2, "store")
    );
    assert!(eval.folder().dataset("push", 1, 2).is_file());
}

#[test]
fn it_runs_alone() {
    let eval = Eval::new(&[job("reach", 2, 1)]).launched_by(&[rank()]);
    eval.run().succeeds().stderr_has("[rank 0/1] device cpu: ");
    assert!(eval.folder().dataset("reach", 0, 1).is_file());
}

#[test]
fn a_rank_whose_launcher_forgot_half_says_what_is_missing() {
    let eval = Eval::new(&[job("reach", 2, 1)])
        .launched_by(&[rank()])
        .env("WORLD_SIZE", "2")
        .env("RANK", "0");
    eval.run()
        .fails_with(i32::from(jobs::exit::FINAL))
        .stderr_has("MASTER_ADDR is not set, but WORLD_SIZE 2 requires it");
    assert!(!eval.folder().root().exists());
}
