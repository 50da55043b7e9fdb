//! Fuzz targets for input of a rank or a policy server, and for checkpoints.

use std::io::{self, Read, Write};
use std::mem::{Discriminant, discriminant};

use bytes::BytesMut;
use rig::hostile::Target;
use runtime::policy::xpolicylab::{self, AnswerError, FrameError, MessageType};
use runtime::serve::http;
use tungstenite::WebSocket;
use tungstenite::protocol::{Role, WebSocketConfig};
use wire::zmtp::{Heard, Reader, Socket, Violation};

#[test]
fn hostile_msgpack() {
    let words: &[&[u8]] = &[
        b"\x81",
        b"\x85",
        b"\xdc",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6",
        b"\xc7",
        b"nd",
        b"shape",
    ];
    Target::new("msgpack").dictionary(words).run(|input| {
        let message = wire::read(&input.to_vec().into());
        message.map(|_| ()).map_err(|err| discriminant(&err))
    });
}

#[test]
fn hostile_xpolicylab() {
    let words: &[&[u8]] = &[
        b"\xa7actions",
        b"\xafarm_joint_state",
        b"\xaeee_joint_state",
        b"\xa5error",
        b"\xacinfer_result",
        b"\xaamessage_id",
        b"\xa7payload",
        b"\xdd\xff\xff\xff\xff",
        b"\x90",
    ];
    let keys = ["arm_joint_state", "ee_joint_state"].map(str::to_owned);
    Target::new("xpolicylab").dictionary(words).run(|input| {
        let message = input.to_vec().into();
        let payload = xpolicylab::payload(&message, MessageType::Infer, "a-1");
        let payload = payload.map_err(|err| Refusal::Frame(discriminant(&err)))?;
        let chunk = xpolicylab::read_chunk(&payload, &keys, 2, 8);
        let chunk = chunk.map_err(|err| Refusal::Actions(discriminant(&err)))?;
        assert!((1..=8).contains(&chunk.horizon()));
        Ok::<_, Refusal>(chunk.horizon())
    });
}

/// Why an answer of XPolicyLab is refused.
#[derive(Hash)]
enum Refusal {
    Frame(Discriminant<FrameError>),
    Actions(Discriminant<AnswerError>),
}

#[test]
fn hostile_vla_eval() {
    let words: &[&[u8]] = &[
        b"\xa4type",
        b"\xa5hello",
        b"\xa6action",
        b"\xa7payload",
        b"\xa3seq",
        b"\xab__ndarray__",
        b"\xa9__image__",
        b"\xa5shape",
        b"\xdf\xff\xff\xff\xff",
    ];
    Target::new("vla_eval").dictionary(words).run(|input| {
        let message = wire::VlaEvalMessage::read(&input.to_vec().into());
        message
            .map(|message| message.kind.name())
            .map_err(|err| discriminant(&err))
    });
}

#[test]
fn hostile_npy() {
    let words: &[&[u8]] = &[
        b"'descr': '<f4'",
        b"'fortran_order': True",
        b"'shape': (",
        b"1, 1, 1, 1, ",
        b"65535",
        b"\x93NUMPY\x02\x00",
    ];
    Target::new("npy").dictionary(words).run(|input| {
        let message = [(wire::Key::from("__ndarray_class__"), true.into())];
        let file = [(
            wire::Key::from("as_npy"),
            wire::Value::Bytes(input.to_vec().into()),
        )];
        let message = wire::Value::Map(message.into_iter().chain(file).collect());
        let read = wire::read(&wire::write(&message, wire::Dialect::Kind).into());
        read.map(|message| message.value.as_array().map(|array| array.shape().len()))
            .map_err(|err| discriminant(&err))
    });
}

#[test]
fn hostile_token() {
    let words: &[&[u8]] = &[
        b"\xa9api_token",
        b"\xa6s3cret",
        b"\x82",
        b"\xdf\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xc6",
    ];
    Target::new("msgpack").dictionary(words).run(|input| {
        let peeked = wire::peek_text(input, "api_token");
        if let Ok(message) = wire::read(&input.to_vec().into())
            && matches!(message.value, wire::Value::Map(_))
        {
            let read = message
                .value
                .get("api_token")
                .and_then(wire::Value::as_text);
            assert_eq!(peeked, read, "what is checked is what is read");
        }
        peeked.map(str::len)
    });
}

#[test]
fn hostile_zmtp() {
    let words: &[&[u8]] = &[
        b"\x01\x00\x02",
        b"\x04\x26\x05READY",
        b"\x0bSocket-Type\0\0\0\x03REQ",
        b"\x04\x07\x04PING\0\0",
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL",
    ];
    Target::new("zmtp")
        .dictionary(words)
        .longest(1024)
        .run(|input| {
            // Input in pieces gives the same result as input at once.
            let step = 1 + usize::from(input.last().copied().unwrap_or(0));
            let (whole, pieces) = (heard(input, input.len().max(1)), heard(input, step));
            assert_eq!(whole, pieces);
            whole
                .map(|heard| heard.len())
                .map_err(|violation| discriminant(&violation))
        });
}

fn heard(input: &[u8], step: usize) -> Result<Vec<Heard>, Violation> {
    let (mut reader, mut buffer, mut heard) = (Reader::new(2048), BytesMut::new(), Vec::new());
    for piece in input.chunks(step) {
        buffer.extend_from_slice(piece);
        while let Some(next) = reader.next(&mut buffer)? {
            if let Heard::Command(name, properties) = &next {
                // Sockets that are not valid peers are refused.
                let _ = Socket::Rep.check_ready(name, properties);
            }
            heard.push(next);
        }
        assert!(reader.held() <= 2048 && reader.wants(&buffer) <= 2048 + 4096);
    }
    Ok(heard)
}

#[test]
fn hostile_websocket() {
    let words: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\n",
        b"Upgrade: websocket\r\n",
        b"Sec-WebSocket-Key: ",
        b"Authorization: Api-Key ",
        b"\r\n\r\n",
        b"\x82\xff\0\0\0\0",
        b"\x88\x80",
        b"\x89\xfd",
        b"\x02\xfe\xff\xff",
    ];
    Target::new("websocket").dictionary(words).run(|input| {
        let head = http::parse(input);
        let frames = match &head {
            Ok(Some(head)) => &input[head.length..],
            _ => input,
        };
        let config = WebSocketConfig::default()
            .max_message_size(Some(2048))
            .max_frame_size(Some(2048));
        let mut socket = WebSocket::from_raw_socket(Peer(frames), Role::Server, Some(config));
        let mut messages = 0;
        while let Ok(message) = socket.read() {
            assert!(message.len() <= 2048);
            messages += 1;
        }
        (
            head.map(|head| head.map(|head| (head.is_get, head.key.is_some())))
                .is_ok(),
            messages,
        )
    });
}

/// A peer that has sent all its data, and accepts any answer.
struct Peer<'a>(&'a [u8]);

impl Read for Peer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
