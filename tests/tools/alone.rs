//! Tests that evaluations which tools start run on this node alone, wherever the tool was started.

use std::path::Path;

use crate::tools::elsewhere::Elsewhere;
use crate::tools::folder::{Done, rrun_at};

/// Seconds after which a launch waits for nodes that never come.
const LIMIT: &str = "60";

/// Runs `rrun` with a fake rank program and these variables; exits with 124 if that takes too long.
fn rrun(elsewhere: &Elsewhere, variables: &[(&str, &str)], words: &[&str]) -> Done {
    let program = elsewhere.bin.join("rrun");
    let folder = elsewhere.run.dir.path().to_str().unwrap();
    let variables = [&[("TMPDIR", folder)], variables].concat();
    let words = [&[LIMIT, program.to_str().unwrap()], words].concat();
    rrun_at(Path::new("timeout"), &variables, &words)
}

/// Checks that every tool that starts an evaluation comes to its end with these variables.
#[track_caller]
fn none_waits(variables: &[(&str, &str)]) {
    let elsewhere = Elsewhere::new(Some);
    let run = elsewhere.run.path();
    let of = |words: &[&str]| rrun(&elsewhere, variables, words);
    of(&["certify", run, "--sample", "2"])
        .succeeds()
        .says("sample: 2 of 2 came out the same again");
    of(&["verify", run, "--determinism", "2"])
        .succeeds()
        .says("note: run again: 2 episodes");
    let certificate = elsewhere.run.folder.certificate();
    of(&["verify", certificate.to_str().unwrap(), "--rerun", "2"])
        .succeeds()
        .says("run again: 2 episodes");
    let suites = concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites");
    std::os::unix::fs::symlink(suites, elsewhere.bin.join("suites")).unwrap();
    let demo = elsewhere.run.dir.path().join("demo");
    of(&["demo", demo.to_str().unwrap()]).succeeds();
    assert!(elsewhere.words().contains("demo.json"));
}

#[test]
fn a_tool_in_a_launch_of_several_nodes_by_variables_waits_for_nobody() {
    none_waits(&[
        ("PET_NNODES", "2"),
        ("PET_NODE_RANK", "1"),
        ("PET_NPROC_PER_NODE", "7"),
        ("PET_RDZV_ENDPOINT", "127.0.0.1:1"),
    ]);
}

#[test]
fn a_tool_in_a_slurm_step_of_several_nodes_waits_for_nobody() {
    none_waits(&[
        ("SLURM_JOB_ID", "1"),
        ("SLURM_NODEID", "0"),
        ("SLURM_PROCID", "0"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NTASKS", "2"),
        ("SLURM_NNODES", "2"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NODELIST", "node[1-2]"),
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
    ]);
}

#[test]
fn a_tool_in_an_indexed_job_waits_for_nobody() {
    none_waits(&[
        ("JOB_COMPLETION_INDEX", "0"),
        ("JOB_COMPLETIONS", "2"),
        ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
    ]);
}
