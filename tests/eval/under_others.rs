//! Tests of the rank under another launcher, and without one.

use crate::eval::command::{Eval, job};
use crate::eval::given::root;

/// Returns the command of the rank alone.
pub fn rank() -> String {
    rig::rrun_rank().to_owned()
}

/// Returns the command of the rank under torchrun.
pub fn torchrun(ranks: usize) -> Vec<String> {
    let torchrun = root().join(".venv/bin/torchrun");
    let ranks = format!("--nproc-per-node={ranks}");
    let words = [
        torchrun.to_str().unwrap(),
        "--standalone",
        &ranks,
        "--no-python",
        &rank(),
    ];
    words.map(str::to_owned).to_vec()
}

#[test]
fn it_runs_under_torchrun() {
    let eval = Eval::new(&[job("reach", 2, 1), job("push", 2, 1)]);
    let eval = eval.launched_by(&torchrun(2)).finished();
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
        .fails_with(i32::from(jobs::rank_env::FINAL))
        .stderr_has("MASTER_ADDR is not set, but WORLD_SIZE 2 requires it");
    assert!(!eval.folder().root().exists());
}
