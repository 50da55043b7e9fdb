//! Tests of invalid configurations, and of a dry run with a server.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::launch::model_server::{eval, free_port, run, server, start, with};

#[test]
fn what_answers_already_is_no_server_of_ours() {
    let port = free_port();
    let _other = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let ended = run(
        &json!({"command": "touch started", "health_port": port}),
        1,
        "true",
    )
    .fails_with(1);
    assert!(!ended.has_file("started"));
    ended.stderr_has(&format!(
        "the model server was not started: port {port} already answers"
    ));
}

#[test]
fn what_is_wrong_is_refused_before_anything_starts() {
    let refused = |server: Value, reason: &str| {
        let ended = run(&server, 1, "touch started")
            .fails_with(1)
            .stderr_has(reason);
        assert!(!ended.has_file("started") && !ended.has_file("starts") && !ended.has_file("out"));
    };
    refused(
        with(server(&[]), "health_url", "https://h"),
        "`jobs.json`: model_server field health_url: `https://h` cannot",
    );
    refused(
        with(server(&[]), "stop_timout", 1),
        "model_server: unknown field `stop_timout`; did you mean `stop_timeout`?",
    );
    refused(
        with(server(&[]), "cwd", "nowhere"),
        "model_server field cwd: there is no folder `nowhere`",
    );
    refused(
        with(server(&[]), "command", json!(["no-such-server"])),
        "there is no program `no-such-server`",
    );
}

#[test]
fn a_dry_run_shows_it_and_starts_nothing() {
    let rrun = eval(
        &with(server(&[]), "devices", json!([0])),
        1,
        "touch started",
    )
    .options(&["--dry-run=json"]);
    let ended = start(&rrun).wait().succeeds();
    assert!(!ended.has_file("starts") && !ended.has_file("started") && !ended.has_file("out"));
    let plan: Value = serde_json::from_str(&ended.stdout).expect("a plan is JSON");
    let shown = &plan["model_server"];
    assert_eq!(
        (&shown["command"][1], &shown["env"]["CUDA_VISIBLE_DEVICES"]),
        (&json!("server.py"), &json!("0"))
    );
    assert_eq!(
        (
            &shown["role"],
            shown["log"]
                .as_str()
                .unwrap()
                .starts_with("out/logs/model_server_")
        ),
        (&json!("host"), true)
    );
}
