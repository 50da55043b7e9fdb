//! Tests of WebSocket and HTTP on the same port.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use wire::{Dialect, Value, read, write};

use crate::serve::client::{Client, file};
use crate::serve::server::{DEADLINE, Server, wait_until};

pub struct Websocket {
    stream: TcpStream,
}

impl Websocket {
    /// Performs the handshake; returns the status line if it is refused.
    fn connect(server: &Server, fields: &str) -> Result<Self, String> {
        Self::connect_to(server, "/", fields)
    }

    /// Performs the handshake on a path.
    pub fn connect_to(server: &Server, path: &str, fields: &str) -> Result<Self, String> {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        // Key and answer of RFC 6455, section 1.3.
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap();
        match head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n") {
            true => Ok(Self { stream }),
            false => Err(head.lines().next().unwrap().to_owned()),
        }
    }

    pub fn send(&mut self, opcode: u8, body: &[u8]) {
        let mut frame = vec![0x80 | opcode, 0x80 | 127];
        frame.extend((body.len() as u64).to_be_bytes());
        // A mask of zeros leaves the body unchanged.
        frame.extend([0; 4]);
        frame.extend(body);
        self.stream.write_all(&frame).unwrap();
    }

    pub fn receive(&mut self) -> (u8, Bytes) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).unwrap();
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length).unwrap();
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.stream.read_exact(&mut length).unwrap();
                u64::from_be_bytes(length)
            }
            length => u64::from(length),
        };
        let mut body = vec![0; length as usize];
        self.stream.read_exact(&mut body).unwrap();
        (head[0] & 0x0f, body.into())
    }
}

/// Asks a server as openpi's client does; returns the actions.
pub fn infer(server: &Server, observation: &Value) -> Vec<f32> {
    let mut socket = Websocket::connect(server, "").unwrap_or_else(|status| panic!("{status}"));
    socket.receive();
    socket.send(BINARY, &write(observation, Dialect::Openpi));
    let (opcode, body) = socket.receive();
    assert_eq!(opcode, BINARY, "{}", String::from_utf8_lossy(&body));
    let answer = read(&body).unwrap().value;
    let actions = answer.get("actions").and_then(Value::as_array);
    actions.unwrap().to_f32()
}

const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

#[test]
fn the_first_message_is_metadata_and_pings_are_answered() {
    let server = Server::start(&[]);
    let mut socket = Websocket::connect(&server, "").unwrap_or_else(|status| panic!("{status}"));
    let (opcode, body) = socket.receive();
    let metadata = read(&body).unwrap().value;
    assert_eq!(opcode, BINARY);
    assert_eq!(
        metadata.get("action_horizon").and_then(Value::as_u64),
        Some(40)
    );
    assert_eq!(
        metadata
            .get("views")
            .and_then(Value::as_list)
            .map(<[Value]>::len),
        Some(2)
    );
    socket.send(PING, b"there?");
    assert_eq!(socket.receive(), (PONG, Bytes::from_static(b"there?")));
}

#[test]
fn an_error_is_a_text_and_the_connection_is_closed_as_openpi_does() {
    let server = Server::start(&[]);
    let refusal = |opcode: u8, body: &[u8]| {
        let mut socket =
            Websocket::connect(&server, "").unwrap_or_else(|status| panic!("{status}"));
        socket.receive();
        socket.send(opcode, body);
        let (opcode, text) = socket.receive();
        assert_eq!(opcode, TEXT);
        let (opcode, close) = socket.receive();
        assert_eq!((opcode, &close[..2]), (CLOSE, &1011u16.to_be_bytes()[..]));
        String::from_utf8(text.to_vec()).unwrap()
    };
    let empty = write(&Value::map([]), Dialect::Openpi);
    assert_eq!(
        refusal(BINARY, &empty),
        "Video key 'exterior_image_1_left' must be in observation"
    );
    assert_eq!(refusal(BINARY, b"\xc1"), "not msgpack: byte 0 is 0xc1");
    assert!(refusal(TEXT, b"hello").starts_with("expected a binary message"));
}

#[test]
fn a_message_that_is_too_long_is_refused_by_its_length() {
    let server = Server::start(&["--max-message", "1"]);
    let mut socket = Websocket::connect(&server, "").unwrap_or_else(|status| panic!("{status}"));
    socket.receive();
    let mut frame = vec![0x82, 0xff];
    frame.extend((1u64 << 40).to_be_bytes());
    frame.extend([0; 4]);
    socket.stream.write_all(&frame).unwrap();
    let (opcode, close) = socket.receive();
    assert_eq!((opcode, &close[..2]), (CLOSE, &1009u16.to_be_bytes()[..]));
}

#[test]
fn a_client_that_ends_without_a_word_has_done_nothing_wrong() {
    let server = Server::start(&[]);
    let mut socket = Websocket::connect(&server, "").unwrap_or_else(|status| panic!("{status}"));
    socket.receive();
    drop(socket);
    // Only the connection of the query itself is left.
    wait_until("it is gone", || {
        server.metric("rrun_serve_connections ") <= 1.0
    });
    assert_eq!(
        server.metric("rrun_serve_closed_total{reason=\"violation\"}"),
        0.0
    );
}

#[test]
fn a_token_is_asked_for_in_the_header() {
    let server = Server::start(&["--api-token", "s3cret"]);
    for wrong in [
        "",
        "Authorization: Api-Key s3cre\r\n",
        "Authorization: Basic s3cret\r\n",
        "Authorization: Basic czNjcmV0Og==\r\n",
    ] {
        assert_eq!(
            Websocket::connect(&server, wrong).err().as_deref(),
            Some("HTTP/1.1 401 Unauthorized"),
            "{wrong}"
        );
    }
    assert!(Websocket::connect(&server, "Authorization: Api-Key s3cret\r\n").is_ok());
    // `any:s3cret`, as clients send what stands before the host in their address.
    let basic = "Authorization: Basic YW55OnMzY3JldA==\r\n";
    assert!(Websocket::connect(&server, basic).is_ok());
}

#[test]
fn health_and_metrics_are_on_the_same_port() {
    let server = Server::start(&[]);
    Client::connect(server.address).ask(&file("ping.request.bin"));
    assert!(server.get("/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(
        server
            .get("/metrics")
            .contains("rrun_serve_requests_total{endpoint=\"ping\"} 1\n")
    );
    assert!(server.get("/etc/passwd").starts_with("HTTP/1.1 404 "));
}

#[test]
fn one_of_the_protocols_can_be_left_out() {
    let server = Server::start(&["--protocol", "zmq"]);
    assert_eq!(
        Websocket::connect(&server, "").err().as_deref(),
        Some("HTTP/1.1 404 Not Found")
    );
    assert!(server.get("/healthz").contains(" 200 OK"));
    let server = Server::start(&["--protocol", "websocket"]);
    assert!(Client::try_connect(server.address).is_err());
    assert!(Websocket::connect(&server, "").is_ok());
}
