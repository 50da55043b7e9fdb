//! Tests of a server from its start to its last restart.

use std::path::Path;

use serde_json::json;

use crate::launch::command::PYTHON;
use crate::launch::model_server::{
    eval, free_port, log, nothing_is_left, run, server, start, starts, with,
};
use crate::launch::running::{alive, wait_until};

#[test]
fn ranks_start_when_the_server_answers_and_it_ends_after_them() {
    let rank = "kill -0 $(cut -d' ' -f1 starts) && echo rank $RANK met a server";
    let ended = run(&server(&["slow"]), 2, rank).succeeds();
    nothing_is_left(&ended);
    assert_eq!(starts(&ended).len(), 1);
    let log = log(&ended);
    assert!(
        log.contains("hello from stdout\n") && log.contains("hello from stderr\n"),
        "{log}"
    );
    ended
        .stderr_has("rrun: model server started (pid ")
        .stderr_has("/health answers after ")
        .prints(&["rank 0 met a server", "rank 1 met a server"]);
}

#[test]
fn it_has_its_own_gpus_variables_and_folder() {
    let mut server = with(server(&[]), "devices", json!([1]));
    server["env"] = json!({"COLOUR": "blue"});
    server["cwd"] = "elsewhere".into();
    server["command"][1] = "../server.py".into();
    let rrun = eval(&server, 1, "echo [$CUDA_VISIBLE_DEVICES]")
        .file("elsewhere/x", "")
        .env("CUDA_VISIBLE_DEVICES", "5,7");
    let ended = start(&rrun).wait().succeeds().stdout_is("[5,7]\n");
    let words = ended.text("elsewhere/starts");
    let words: Vec<&str> = words.trim().split(' ').collect();
    assert_eq!(
        (words[1], words[2], words[3].ends_with("/elsewhere")),
        ("7", "blue", true)
    );
}

#[test]
fn a_port_alone_is_asked_too_and_a_text_is_for_the_shell() {
    let port = free_port();
    let server =
        json!({"command": format!("{PYTHON} server.py {port} slow; true"), "health_port": port});
    let ended = run(&server, 1, "echo met").succeeds().stdout_is("met\n");
    nothing_is_left(&ended);
}

#[test]
fn one_that_exits_at_once_is_named_with_its_code_and_last_words_and_no_rank_starts() {
    let ended = run(&server(&["early"]), 2, "touch started").fails_with(1);
    assert!(!ended.has_file("started"));
    assert_eq!(
        starts(&ended).len(),
        1,
        "it has never worked, so it is not tried again"
    );
    ended
        .stderr_has("rrun: model server (`")
        .stderr_has(") exited with code 1 before http://127.0.0.1:")
        .stderr_has("  no such model: gr00t-9000\n")
        .stderr_lacks("FAILED");
}

#[test]
fn one_that_is_never_healthy_is_ended_with_what_it_answered() {
    let ended = run(
        &with(server(&["sick"]), "start_timeout", 1),
        1,
        "touch started",
    )
    .fails_with(1);
    nothing_is_left(&ended);
    assert!(!ended.has_file("started"));
    ended.stderr_has("/health had not answered after 1 s (it answers with status 503)");
}

#[test]
fn one_that_crashes_is_started_again_and_the_ranks_go_on() {
    let rank = "echo $$ >> pids; until [ $(wc -l < starts) = 2 ]; do sleep 0.01; done; await go";
    let running = start(&eval(&server(&["once"]), 1, rank));
    running.wait_for_stderr("restart 1 of 3 in 1 s, the ranks continue\n");
    wait_until("the server to answer again", || {
        running.stderr().matches(" answers after ").count() == 2
    });
    running.write("go");
    let ended = running.wait().succeeds();
    nothing_is_left(&ended);
    assert_eq!(
        (starts(&ended).len(), ended.text("pids").lines().count()),
        (2, 1)
    );
    ended
        .stderr_has(") exited with code 1; restart 1 of 3")
        .stderr_has("  out of memory\n");
}

#[test]
fn when_no_restart_is_left_the_launch_fails_and_the_ranks_may_close_their_files() {
    let rank = "trap 'echo > closed; exit 0' TERM; echo $$ > pid.$RANK; sleep 10000 & wait";
    let ended = run(&with(server(&["dies"]), "max_restarts", 1), 1, rank).fails_with(1);
    nothing_is_left(&ended);
    assert_eq!(starts(&ended).len(), 2);
    assert!(ended.has_file("closed") && !ended.pids(&["pid.0"]).into_iter().any(alive));
    ended
        .stderr_has("; restart 1 of 1 in 1 s")
        .stderr_has(" exited with code 1; no restart is left")
        .stderr_lacks("FAILED");
}

#[test]
fn a_resumed_run_has_the_server_of_its_first_start() {
    let home = tempfile::tempdir().unwrap();
    let rrun = eval(&server(&[]), 1, "echo met").env("HOME", &home.path().to_string_lossy());
    let first = start(&rrun).wait().succeeds();
    let rrun = rrun.program(&["eval", "--resume", "out"]);
    let second = start(&rrun).wait().succeeds();
    assert_eq!(starts(&second).len(), 2);
    nothing_is_left(&first);
    assert!(Path::new(&second.path("out/plan.json")).exists());
}
