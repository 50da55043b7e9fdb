//! Tests with real clients: pyzmq with the reference's messages, `openpi-client` and `vla-eval` from
//! PyPI.

use std::process::Command;

use crate::serve::server::Server;

/// Runs a program of clients with a server; skips if the venv lacks the modules.
fn with_clients(modules: &str, program: &str, words: &[&str], said: &str) {
    let python = rig::fixture("../../.venv/bin/python");
    let probe = Command::new(&python)
        .args(["-c", &format!("import {modules}")])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no {modules} in .venv");
        return;
    }
    let server = Server::start(&[&["--api-token", "s3cret"], words].concat());
    let output = Command::new(python)
        .arg(rig::fixture(program))
        .arg(server.address.port().to_string())
        .arg(rig::fixture("gr00t/protocol"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    assert_eq!(text(&output.stdout), said);
}

#[test]
fn real_clients_work_unchanged() {
    with_clients(
        "zmq, msgpack, openpi_client, websockets, numpy",
        "serve_clients.py",
        &[],
        "zmq\nopenpi\n",
    );
}

#[test]
fn vla_evals_own_client_and_runner_work_unchanged() {
    with_clients(
        "zmq, vla_eval.connection, PIL",
        "serve_vla_eval.py",
        &["--chunk-size", "2"],
        "chunks\nseeds\nrunner\nvla-eval\n",
    );
}
