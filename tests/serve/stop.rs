//! Tests of stopping a server.

use std::net::TcpStream;

use rig::wait::until;
use wire::{Dialect, Value, read, write};

use crate::serve::client::{Client, error, numbers, seeded};
use crate::serve::server::Server;

#[test]
fn what_was_asked_is_answered_and_what_comes_is_refused() {
    let server = Server::start(&["--max-wait", "0"]);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(server.address)).collect();
    let mut late = Client::connect(server.address);
    for (seed, client) in clients.iter_mut().enumerate() {
        client
            .send(&write(&seeded(seed as u64), Dialect::Kind))
            .unwrap();
    }
    // Requests are counted after they are decoded; before the first one the metric does not exist.
    let all = "rrun_serve_requests_total{endpoint=\"get_action\"} 4\n";
    until("all requests are there", || {
        server.get("/metrics").contains(all)
    });
    server.stop();
    until("nobody new is let in", || {
        TcpStream::connect(server.address).is_err()
    });
    // The server may have exited by now; if not, it refuses.
    if late.send(&write(&seeded(9), Dialect::Kind)).is_ok()
        && let Ok(answer) = late.receive()
    {
        assert_eq!(
            error(&read(&answer.into()).unwrap().value),
            "the server is stopping"
        );
    }
    for client in &mut clients {
        let answer = client.receive().expect("pending requests are answered");
        numbers(&read(&answer.into()).unwrap().value);
    }
    let ended = server.wait().succeeds();
    ended
        .stderr_has("stopping: stopped by a signal")
        .stderr_has("ended after");
}

#[test]
fn kill_can_be_switched_off() {
    let server = Server::start(&["--ignore-kill"]);
    let mut client = Client::connect(server.address);
    let answer = client.ask_value(&Value::map([("endpoint", "kill".into())]));
    assert!(error(&answer).contains("--ignore-kill"));
    assert!(server.get("/healthz").ends_with("\r\n\r\nOK\n"));
}
