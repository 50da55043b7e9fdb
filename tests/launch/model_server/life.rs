//! Tests of a server from its start to its last restart. What is refused has unit tests.

use std::net::TcpListener;

use rig::net;
use serde_json::{Value, json};

use crate::launch::assert_gone;
use crate::launch::model_server::{
    assert_over, log, ranks_beside, server, server_of_a_shell, starts_in, with,
};

#[test]
fn ranks_start_when_the_server_answers_and_it_ends_after_them() {
    let rank = "kill -0 $(cut -d' ' -f1 starts) && echo rank $RANK met a server";
    let ended = ranks_beside(&server("slow"), 2, rank)
        .succeeds()
        .stderr_has("rrun: model server started (pid ")
        .stderr_has("/health answers after ")
        .prints(&["rank 0 met a server", "rank 1 met a server"]);
    assert_over(&ended, 1);
    let log = log(&ended);
    assert!(log.contains("hello from stdout\n"), "{log}");
    assert!(log.contains("hello from stderr\n"), "{log}");
}

#[test]
fn it_has_its_own_gpus_variables_and_folder() {
    let mut server = with(server(""), "devices", json!([1]));
    server["env"] = json!({"COLOUR": "blue"});
    server["cwd"] = "elsewhere".into();
    server["command"][1] = "../server.py".into();
    let ended = ranks_beside(&server, 1, "echo [$CUDA_VISIBLE_DEVICES]")
        .file("elsewhere/x", "")
        .env("CUDA_VISIBLE_DEVICES", "5,7")
        .succeeds()
        .stdout_is("[5,7]\n");
    let start = &starts_in(&ended.text("elsewhere/starts"))[0];
    assert_eq!(start[1..3], ["7", "blue"]);
    assert!(start[3].ends_with("/elsewhere"), "{start:?}");
}

#[test]
fn a_port_alone_is_asked_too_and_a_text_is_for_the_shell() {
    let server = server_of_a_shell("", "slow; true");
    let ended = ranks_beside(&server, 1, "echo met").succeeds();
    assert_over(&ended.stdout_is("met\n"), 1);
}

#[test]
fn one_that_exits_at_once_is_named_with_its_code_and_last_words_and_no_rank_starts() {
    let ended = ranks_beside(&server("early"), 2, "touch started")
        .fails_with(1)
        .stderr_has("rrun: model server (`")
        .stderr_has(") exited with code 1 before http://127.0.0.1:")
        .stderr_has("  no such model: gr00t-9000\n")
        .stderr_lacks("FAILED");
    assert!(!ended.has_file("started"));
    // It has never worked, so it is not tried again.
    assert_over(&ended, 1);
}

#[test]
fn one_that_is_never_healthy_is_ended_with_what_it_answered() {
    let server = with(server("sick"), "start_timeout", 1);
    let ended = ranks_beside(&server, 1, "touch started")
        .fails_with(1)
        .stderr_has("/health had not answered after 1 s (it answers with status 503)");
    assert!(!ended.has_file("started"));
    assert_over(&ended, 1);
}

#[test]
fn one_that_crashes_is_started_again_and_the_ranks_go_on() {
    let rank = "echo $$ >> pids; until [ $(wc -l < starts) = 2 ]; do sleep 0.01; done; await go";
    let running = ranks_beside(&server("once"), 1, rank).start();
    running.wait_for_stderr(") exited with code 1; restart 1 of 3 in 1 s, the ranks continue\n");
    running.wait_for_count(" answers after ", 2);
    running.write("go");
    let ended = running.wait().succeeds().stderr_has("  out of memory\n");
    assert_over(&ended, 2);
    assert_eq!(ended.text("pids").lines().count(), 1);
}

#[test]
fn when_no_restart_is_left_the_launch_fails_and_the_ranks_may_close_their_files() {
    let rank = "trap 'echo > closed; exit 0' TERM; echo $$ > pid.$RANK; sleep 10000 & wait";
    let ended = ranks_beside(&with(server("dies"), "max_restarts", 0), 1, rank)
        .fails_with(1)
        .stderr_has(" exited with code 1; no restart is left")
        .stderr_lacks("FAILED");
    assert_over(&ended, 1);
    assert!(ended.has_file("closed"));
    assert_gone(&ended, &["pid.0"]);
}

#[test]
fn a_resumed_run_has_the_server_of_its_first_start() {
    let rrun = ranks_beside(&server(""), 1, "echo met");
    let home = rrun.path("tmp").display().to_string();
    let rrun = rrun.env("HOME", home);
    rrun.succeeds();
    let resumed = rrun.program("eval --resume out").succeeds();
    assert_over(&resumed, 2);
    assert!(resumed.has_file("out/plan.json"));
}

#[test]
fn what_answers_already_is_no_server_of_ours() {
    let port = net::port();
    let _other = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let server = json!({"command": "touch started", "health_port": port});
    let told = format!("the model server was not started: port {port} already answers");
    let ended = ranks_beside(&server, 1, "true")
        .fails_with(1)
        .stderr_has(&told);
    assert!(!ended.has_file("started"));
}

#[test]
fn one_that_cannot_be_started_is_refused_and_a_dry_run_shows_another_before_anything_starts() {
    let nowhere = with(server(""), "command", json!(["no-such-server"]));
    let refused = ranks_beside(&nowhere, 1, "touch started")
        .fails_with(1)
        .stderr_has("there is no program `no-such-server`");
    let server = with(server(""), "devices", json!([0]));
    let shown = ranks_beside(&server, 1, "touch started")
        .words("--dry-run=json")
        .succeeds();
    for ended in [&refused, &shown] {
        assert!(
            !["starts", "started", "out"]
                .iter()
                .any(|name| ended.has_file(name))
        );
    }
    let plan: Value = serde_json::from_str(&shown.stdout).expect("a plan is JSON");
    let shown = &plan["model_server"];
    assert_eq!(shown["command"][1], "server.py");
    assert_eq!(shown["env"]["CUDA_VISIBLE_DEVICES"], "0");
    assert_eq!(shown["role"], "host");
    let log = shown["log"].as_str().unwrap();
    assert!(log.starts_with("out/logs/model_server_"), "{log}");
}
