//! Tests of clients that lie, stall, or are many, which must not affect the others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rig::wait::{DEADLINE, now};

use crate::serve::client::{Client, file, hello, ping};
use crate::serve::server::Server;

fn is_well(server: &Server) {
    ping(&mut Client::connect(server.address));
}

/// Sends bytes and waits until the server closes the connection; returns how long that took.
fn is_closed_after(address: SocketAddr, bytes: &[u8]) -> Duration {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let start = now();
    // The server may have closed the connection already.
    let _ = stream.write_all(bytes);
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(err) => assert_eq!(err.kind(), std::io::ErrorKind::ConnectionReset, "{err}"),
    }
    start.elapsed()
}

#[test]
fn huge_lengths_are_refused_when_they_are_promised() {
    let server = Server::start(&["--max-message", "1"]);
    let before = server.resident();
    let promise = |length: u64| [&hello()[..], b"\x01\x00\x02", &length.to_be_bytes()].concat();
    for length in [u64::MAX, 1 << 40, (1 << 20) + 1] {
        let took = is_closed_after(server.address, &promise(length));
        assert!(took < Duration::from_secs(5), "{length}: {took:?}");
    }
    // A list of four billion values in a message of six bytes.
    let mut client = Client::connect(server.address);
    let answer = client.ask(b"\xdd\xff\xff\xff\xff\xc0");
    assert!(String::from_utf8_lossy(&answer).contains("ends within a value"));
    assert!(
        server.resident() < before + 20_000,
        "{before} KiB became {}",
        server.resident()
    );
    is_well(&server);
}

#[test]
fn half_a_message_and_half_a_greeting_are_given_up() {
    let server = Server::shared();
    let parts = [
        &hello()[..40],
        &[&hello()[..], b"\x01\x00\x02\0\0\0\0\0\x01\0\0half"].concat(),
        b"GET /metr",
    ];
    std::thread::scope(|scope| {
        for part in parts {
            let address = server.address;
            scope.spawn(move || {
                let took = is_closed_after(address, part);
                assert!(
                    (Duration::from_secs(8)..Duration::from_secs(60)).contains(&took),
                    "{took:?}"
                );
            });
        }
        is_well(server);
    });
    is_well(server);
}

#[test]
fn a_thousand_silent_connections_cost_nobody_a_seat() {
    let server = Server::start(&["--max-connections", "40"]);
    let mut client = Client::connect(server.address);
    ping(&mut client);
    let mut silent = Vec::new();
    for number in 0..1000 {
        let mut stream = TcpStream::connect(server.address).unwrap();
        if number % 2 == 0 {
            // The connection may already be closed.
            let _ = stream.write_all(&hello());
        }
        silent.push(stream);
    }
    // A known client is not evicted for unknown ones.
    ping(&mut client);
    is_well(&server);
    assert!(server.metric("rrun_serve_connections") <= 40.0);
    assert!(server.metric("rrun_serve_closed_total{reason=\"evicted\"}") >= 900.0);
}

#[test]
fn a_client_that_reads_nothing_holds_up_nobody() {
    let server = Server::shared();
    let mut deaf = Client::connect(server.address);
    // More answers than fit into the socket buffers: a server that waits for the client would be
    // stuck.
    let request = file("get_modality_config.request.bin");
    let message = [b"\x01\x00\x00", &[request.len() as u8][..], &request].concat();
    deaf.raw(&message.repeat(2000)).unwrap();
    is_well(server);
}
