//! Tests with real clients: pyzmq with the reference's messages, `openpi-client` and `vla-eval` from
//! PyPI.

use rig::need::{Need, need};
use rig::run::Given;

use crate::serve::server::Server;

/// Runs a program of clients with a server.
fn with_clients(modules: &'static str, program: &str, words: &[&str], said: &str) {
    if !need(Need::Python(modules)) {
        return;
    }
    let server = Server::start(&[&["--api-token", "s3cret"], words].concat());
    Given::new(rig::PYTHON)
        .words([rig::fixture(program)])
        .words([&server.address.port().to_string()])
        .words([rig::fixture("gr00t/protocol")])
        .succeeds()
        .stdout_is(said);
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
