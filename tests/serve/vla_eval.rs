//! Tests of vla-eval's protocol: what its own client does not show.

use std::net::TcpStream;

use bytes::Bytes;
use serde_json::json;
use tungstenite::{Message, WebSocket};
use wire::{Dialect, Value, VlaEvalKind, VlaEvalMessage};

use crate::serve::server::Server;
use crate::serve::websocket::{binary, connect};

struct Client {
    socket: WebSocket<TcpStream>,
}

impl Client {
    fn connect(server: &Server, path: &str) -> Self {
        Self {
            socket: connect(server, path),
        }
    }

    fn send(&mut self, kind: VlaEvalKind, seq: u64, payload: Value) {
        let message = VlaEvalMessage { kind, payload, seq };
        self.say(message.write(0.0));
    }

    fn say(&mut self, body: impl Into<Bytes>) {
        self.socket.send(Message::binary(body)).unwrap();
    }

    fn hello(&mut self, seq: u64, version: u64) {
        let payload = Value::from(&json!({"protocol_version": version}));
        self.send(VlaEvalKind::Hello, seq, payload);
    }

    fn receive(&mut self) -> VlaEvalMessage {
        VlaEvalMessage::read(&binary(&mut self.socket)).unwrap()
    }

    /// Returns number and text of an error.
    fn error(&mut self) -> (u64, String) {
        let error = self.receive();
        assert_eq!(error.kind, VlaEvalKind::Error);
        let text = error.payload.get("error").and_then(Value::as_text).unwrap();
        (error.seq, text.to_owned())
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.socket.read(), Ok(Message::Close(_)))
    }
}

#[test]
fn on_its_path_a_hello_has_the_number_of_the_clients() {
    let server = Server::shared();
    let mut client = Client::connect(server, "/vla-eval");
    for seq in [5, 9] {
        client.hello(seq, 1);
        let hello = client.receive();
        assert_eq!((hello.kind, hello.seq), (VlaEvalKind::Hello, seq));
    }
}

#[test]
fn elsewhere_a_hello_comes_first_and_is_not_repeated() {
    let server = Server::shared();
    let mut client = Client::connect(server, "/");
    assert_eq!(client.receive().kind, VlaEvalKind::Hello);
    client.hello(1, 1);
    client.send(VlaEvalKind::Observation, 2, Value::map([]));
    let (seq, text) = client.error();
    assert!(
        seq == 2 && text.starts_with("the observation has no images, expected "),
        "{text}"
    );
    client.hello(3, 1);
    assert_eq!(client.receive().seq, 3);
}

#[test]
fn another_version_and_what_is_no_message_are_refused() {
    let server = Server::shared();
    let mut client = Client::connect(server, "/vla-eval");
    client.hello(4, 2);
    let wanted = (4, "expected protocol_version 1 in hello".to_owned());
    assert_eq!(client.error(), wanted);
    assert!(client.is_closed());
    let refusal = |body: Vec<u8>| {
        let mut client = Client::connect(server, "/vla-eval");
        client.say(body);
        let (seq, text) = client.error();
        assert!(seq == 0 && client.is_closed());
        text
    };
    assert_eq!(refusal(b"\xc1".to_vec()), "not msgpack: byte 0 is 0xc1");
    let openpis = wire::write(&Value::map([("prompt", "x".into())]), Dialect::Openpi);
    assert_eq!(refusal(openpis), "a message needs `type`, a string");
}
