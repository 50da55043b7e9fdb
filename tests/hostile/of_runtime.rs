//! Fuzz targets for input of a rank or a policy server, and for checkpoints.

use std::io::{self, Read, Write};

use bytes::BytesMut;
use rig::hostile::Target;
use runtime::protocols::xpolicylab;
use runtime::serve::http;
use tokio_tungstenite::tungstenite::WebSocket;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use wire::zmtp::{Heard, Reader, Socket};

/// Returns which kind of refusal this is: the beginning of its text, without numbers.
fn reason(text: String) -> String {
    text.chars().filter(|c| !c.is_numeric()).take(30).collect()
}

#[test]
fn hostile_msgpack() {
    Target::new("msgpack").run(|input| {
        let message = wire::read(&input.to_vec().into());
        message.map(|_| ()).map_err(reason)
    });
}

#[test]
fn hostile_xpolicylab() {
    let keys = ["arm_joint_state", "ee_joint_state"].map(str::to_owned);
    Target::new("xpolicylab").run(|input| {
        let message = input.to_vec().into();
        let payload = xpolicylab::payload(&message, xpolicylab::INFER, "a-1");
        let payload = payload.map_err(|err| kind(&err))?;
        let chunk = xpolicylab::read_chunk(&payload, &keys, 2, 8);
        let chunk = chunk.map_err(|err| kind(&err))?;
        assert!((1..=8).contains(&chunk.horizon()));
        Ok::<_, String>(chunk.horizon())
    });
}

/// Returns the words of a refusal without what the input has in it, to tell refusals apart.
fn kind(refusal: &str) -> String {
    let letters = |letter: &char| letter.is_ascii_alphabetic() || *letter == ' ';
    refusal.chars().filter(letters).take(24).collect()
}

#[test]
fn hostile_vla_eval() {
    Target::new("vla_eval").run(|input| {
        let message = wire::VlaEvalMessage::read(&input.to_vec().into());
        message.map(|message| message.kind.name()).map_err(reason)
    });
}

#[test]
fn hostile_npy() {
    Target::new("npy").run(|input| {
        let message = [(wire::Key::from("__ndarray_class__"), true.into())];
        let file = [(
            wire::Key::from("as_npy"),
            wire::Value::Bytes(input.to_vec().into()),
        )];
        let message = wire::Value::Map(message.into_iter().chain(file).collect());
        let read = wire::read(&wire::write(&message, wire::Dialect::Kind).into());
        read.map(|message| message.value.as_array().map(|array| array.shape().len()))
            .map_err(reason)
    });
}

#[test]
fn hostile_token() {
    Target::new("token").corpus("msgpack").run(|input| {
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
    Target::new("zmtp").longest(1024).run(|input| {
        // Input in pieces gives the same result as input at once.
        let step = 1 + usize::from(input.last().copied().unwrap_or(0));
        let (whole, pieces) = (heard(input, input.len().max(1)), heard(input, step));
        assert_eq!(whole, pieces);
        whole.map(|heard| heard.len()).map_err(reason)
    });
}

fn heard(input: &[u8], step: usize) -> Result<Vec<Heard>, String> {
    let (mut reader, mut buffer, mut heard) = (Reader::new(2048), BytesMut::new(), Vec::new());
    for piece in input.chunks(step) {
        buffer.extend_from_slice(piece);
        while let Some(next) = reader.next(&mut buffer)? {
            if let Heard::Command(name, properties) = &next {
                // Sockets that are not valid peers are refused.
                for socket in [Socket::Rep, Socket::Req] {
                    let _ = socket.check_ready(name, properties);
                }
            }
            heard.push(next);
        }
        assert!(reader.held() <= 2048 && reader.wants(&buffer) <= 2048 + 4096);
    }
    Ok(heard)
}

#[test]
fn hostile_websocket() {
    Target::new("websocket").run(|input| {
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
