//! Tests of `--dry-run`, which shows what would be started.

use serde_json::{Value, json};

use crate::command::Rrun;

#[track_caller]
fn plan(rrun: Rrun) -> Value {
    let ended = rrun.options(&["--dry-run", "--log-dir", "logs"]).succeeds();
    assert!(
        !ended.has_file("started") && !ended.has_file("logs") && ended.entries("tmp").is_empty()
    );
    serde_json::from_str(&ended.stdout).expect("a plan is JSON")
}

#[test]
fn a_plan_is_printed_and_nothing_is_started() {
    let plan = plan(Rrun::new().nproc(2).options(&["--no-python"]).program(&[
        "touch",
        "started",
        "${local_rank}",
    ]));
    assert_eq!(plan["ranks"][0]["argv"], json!(["touch", "started", "0"]));
    assert_eq!(plan["ranks"][1]["argv"], json!(["touch", "started", "1"]));
    assert_eq!(plan["ranks"][1]["env"], json!({"LOCAL_RANK": "1"}));
}

#[test]
fn options_show_in_the_plan() {
    let rrun = Rrun::new()
        .nproc(2)
        .options(&["--role", "r", "--max-restarts", "3", "-t", "1:2"]);
    let plan = plan(rrun.program(&["train.py"]));
    assert_eq!(
        (&plan["role"], &plan["max_restarts"]),
        (&json!("r"), &json!(3))
    );
    assert_eq!(
        plan["ranks"][0]["tee"],
        json!({"stdout": false, "stderr": false})
    );
    assert_eq!(
        plan["ranks"][1]["tee"],
        json!({"stdout": false, "stderr": true})
    );
}

#[test]
fn the_failure_policy_shows_in_the_plan() {
    let policy = |rrun: Rrun| plan(rrun.program(&["train.py"]))["failure_policy"].clone();
    assert_eq!(policy(Rrun::new()), "torchrun");
    assert_eq!(
        policy(Rrun::new().options(&["--failure_policy", "isolate"])),
        "isolate"
    );
    assert_eq!(
        policy(Rrun::new().env("PET_FAILURE_POLICY", "isolate")),
        "isolate"
    );
}

#[test]
fn a_launch_that_would_be_refused_is() {
    let rrun = Rrun::new()
        .options(&["--dry-run", "--nproc-per-node", "abc"])
        .program(&["train.py"]);
    rrun.fails_with(1)
        .stdout_is("")
        .stderr_has("Unsupported nproc_per_node value: abc");
}
