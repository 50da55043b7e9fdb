//! Tests with real clients: pyzmq with the reference's messages, and `openpi-client` from PyPI.

use std::path::Path;
use std::process::Command;

use crate::server::{Server, fixtures};

#[test]
fn real_clients_work_unchanged() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
    let probe = Command::new(&python)
        .args([
            "-c",
            "import zmq, msgpack, openpi_client, websockets, numpy",
        ])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no pyzmq, msgpack and openpi-client in .venv");
        return;
    }
    let server = Server::start(&["--api-token", "s3cret"]);
    let output = Command::new(python)
        .arg(fixtures().join("serve_clients.py"))
        .arg(server.address.port().to_string())
        .arg(fixtures().join("gr00t/protocol"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    assert_eq!(text(&output.stdout), "zmq\nopenpi\n");
}
