//! Tests of WebSocket and HTTP on the same port.

use std::io::Write;
use std::net::TcpStream;

use bytes::Bytes;
use rig::wait::{DEADLINE, until};
use tungstenite::{Message, WebSocket};
use wire::{Dialect, Value, read, write};

use crate::serve::client::{Client, file};
use crate::serve::server::Server;

/// Performs the handshake on a path.
pub fn connect(server: &Server, path: &str) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let address = format!("ws://{}{path}", server.address);
    tungstenite::client(address, stream).unwrap().0
}

/// Connects as openpi's client does; returns the metadata, too.
fn openpi(server: &Server) -> (WebSocket<TcpStream>, Value) {
    let mut socket = connect(server, "/");
    let metadata = read(&binary(&mut socket)).unwrap().value;
    (socket, metadata)
}

/// Returns the contents of the next message, which is binary.
pub fn binary(socket: &mut WebSocket<TcpStream>) -> Bytes {
    match socket.read().unwrap() {
        Message::Binary(body) => body,
        other => panic!("{other:?}"),
    }
}

/// Returns the code with which the server closes the connection.
pub fn close_code(socket: &mut WebSocket<TcpStream>) -> u16 {
    match socket.read().unwrap() {
        Message::Close(Some(frame)) => frame.code.into(),
        other => panic!("{other:?}"),
    }
}

/// Asks a server as openpi's client does; returns the actions.
pub fn infer(server: &Server, observation: &Value) -> Vec<f32> {
    let (mut socket, _) = openpi(server);
    let request = write(observation, Dialect::Openpi);
    socket.send(Message::binary(request)).unwrap();
    let answer = read(&binary(&mut socket)).unwrap().value;
    let actions = answer.get("actions").and_then(Value::as_array);
    actions.unwrap().to_f32()
}

#[test]
fn the_first_message_is_metadata_and_pings_are_answered() {
    let (mut socket, metadata) = openpi(Server::shared());
    let horizon = metadata.get("action_horizon").and_then(Value::as_u64);
    assert_eq!(horizon, Some(40));
    let views = metadata.get("views").and_then(Value::as_list);
    assert_eq!(views.map(<[Value]>::len), Some(2));
    let body = Bytes::from_static(b"there?");
    socket.send(Message::Ping(body.clone())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong(body));
}

#[test]
fn an_error_is_a_text_and_the_connection_is_closed_as_openpi_does() {
    let refusal = |message: Message| {
        let (mut socket, _) = openpi(Server::shared());
        socket.send(message).unwrap();
        let Message::Text(text) = socket.read().unwrap() else {
            panic!("no text")
        };
        assert_eq!(close_code(&mut socket), 1011);
        text.to_string()
    };
    let empty = write(&Value::map([]), Dialect::Openpi);
    assert_eq!(
        refusal(Message::binary(empty)),
        "Video key 'exterior_image_1_left' must be in observation"
    );
    assert_eq!(
        refusal(Message::binary(&b"\xc1"[..])),
        "not msgpack: byte 0 is 0xc1"
    );
    assert!(refusal(Message::text("hello")).starts_with("expected a binary message"));
}

#[test]
fn a_message_that_is_too_long_is_refused_by_its_length() {
    let server = Server::start(&["--max-message", "1"]);
    let (mut socket, _) = openpi(&server);
    let frame = [&[0x82, 0xff][..], &(1u64 << 40).to_be_bytes(), &[0; 4]];
    socket.get_mut().write_all(&frame.concat()).unwrap();
    assert_eq!(close_code(&mut socket), 1009);
}

#[test]
fn a_client_that_ends_without_a_word_has_done_nothing_wrong() {
    let server = Server::start(&[]);
    drop(openpi(&server));
    // Only the connection of the query itself is left.
    until("it is gone", || {
        server.metric("rrun_serve_connections ") <= 1.0
    });
    assert_eq!(
        server.metric("rrun_serve_closed_total{reason=\"violation\"}"),
        0.0
    );
}

#[test]
fn health_and_metrics_are_on_the_same_port() {
    let server = Server::start(&[]);
    Client::connect(server.address).ask(&file("ping.request.bin"));
    assert!(server.get("/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    let pings = "rrun_serve_requests_total{endpoint=\"ping\"} 1\n";
    assert!(server.get("/metrics").contains(pings));
    assert!(server.get("/etc/passwd").starts_with("HTTP/1.1 404 "));
}
