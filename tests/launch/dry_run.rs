//! Tests of `--dry-run`, which shows what would be started.

use serde_json::{Value, json};

use crate::launch::command::Rrun;

#[track_caller]
fn plan(rrun: Rrun) -> Value {
    let ended = rrun
        .options(&["--dry-run=json", "--log-dir", "logs"])
        .succeeds();
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
        .options(&["--dry-run=json", "--nproc-per-node", "abc"])
        .program(&["train.py"]);
    rrun.fails_with(1)
        .stdout_is("")
        .stderr_has("Unsupported nproc_per_node value: abc");
}

#[test]
fn without_a_format_the_plan_is_a_table() {
    let rrun = Rrun::new()
        .nproc(2)
        .options(&["--dry-run", "-t", "1:2", "--log-dir", "logs"]);
    let ended = rrun.program(&["train.py", "--lr", "a b"]).succeeds();
    for line in [
        "2 ranks of `train.py`; nothing was started",
        "| Rank | Local rank | GPUs        | CPUs | Output                                    |",
        "| 0    | 0          | all visible | all  | console                                   |",
        "| 1    | 1          | all visible | all  | stdout: console, stderr: file and console |",
        "Meeting    on this node alone",
        "Logs       `logs`",
        "Failure    the first failure ends all ranks",
    ] {
        assert!(
            ended.stdout.contains(&format!("{line}\n")),
            "{line}: {}",
            ended.stdout
        );
    }
    assert!(
        ended.stdout.contains(" -u train.py --lr 'a b'\n"),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("WORLD_SIZE=2 MASTER_ADDR=127.0.0.1"),
        "{}",
        ended.stdout
    );
    assert!(!ended.has_file("logs"));
}

#[test]
fn a_command_that_differs_between_ranks_is_shown_for_each() {
    let rrun = Rrun::new().nproc(2).options(&["--dry-run", "--no-python"]);
    let ended = rrun.program(&["touch", "${local_rank}"]).succeeds();
    assert!(
        ended
            .stdout
            .contains("Command    touch 0\n           touch 1\n"),
        "{}",
        ended.stdout
    );
}

#[test]
fn nodes_that_come_later_leave_ranks_open() {
    let words = ["--dry-run", "--nnodes", "1:4", "--rdzv-backend", "c10d"];
    let words = [
        &words[..],
        &["--rdzv-endpoint", "head:29400", "--rdzv-id", "a"],
    ]
    .concat();
    let ended = Rrun::new()
        .options(&words)
        .program(&["train.py"])
        .succeeds();
    for text in [
        "1 rank of `train.py` on this node, of at most 4 nodes; nothing was started\n",
        "| set later | 0 ",
        "Meeting    1 to 4 nodes through head:29400 (c10d), run id `a`\n",
    ] {
        assert!(ended.stdout.contains(text), "{text}: {}", ended.stdout);
    }
}

#[test]
fn an_unknown_format_is_refused() {
    let rrun = Rrun::new()
        .options(&["--dry-run=xml"])
        .program(&["train.py"]);
    rrun.fails_with(2).stderr_has(
        "argument --dry-run/--dry_run: invalid choice: 'xml' (choose from 'table', 'json')",
    );
}
