//! Tests with the bytes of libzmq.

use super::*;

/// The bytes that libzmq 4.3.5 sends on a REQ socket, up to its first message `hi`.
fn libzmq() -> Vec<u8> {
    let mut bytes = greeting().to_vec();
    bytes.extend(b"\x04\x26\x05READY\x0bSocket-Type\0\0\0\x03REQ\x08Identity\0\0\0\0");
    bytes.extend(b"\x01\x00\x00\x02hi");
    bytes
}

fn hear(bytes: &[u8], step: usize) -> Result<Vec<Heard>, String> {
    let (mut reader, mut buffer, mut heard) = (Reader::new(1000), BytesMut::new(), Vec::new());
    for part in bytes.chunks(step) {
        buffer.extend_from_slice(part);
        while let Some(next) = reader.next(&mut buffer)? {
            heard.push(next);
        }
    }
    Ok(heard)
}

fn refused(bytes: &[u8], step: usize) -> String {
    hear(bytes, step).unwrap_err().to_string()
}

#[test]
fn both_sides_say_what_they_are() {
    let ready = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REQ";
    assert_eq!(Socket::Req.ready(), ready);
    Socket::Rep.check_ready(b"READY", &ready[8..]).unwrap();
    let refused = Socket::Req.check_ready(b"READY", &ready[8..]).unwrap_err();
    assert_eq!(refused.to_string(), "a REQ socket, expected REP or ROUTER");
}

#[test]
fn a_request_is_heard_however_its_bytes_arrive() {
    for step in 1..100 {
        let heard = hear(&libzmq(), step).unwrap();
        let [
            Heard::Greeting,
            Heard::Command(name, properties),
            Heard::Request(request),
        ] = &heard[..]
        else {
            panic!("{heard:?}")
        };
        Socket::Rep.check_ready(name, properties).unwrap();
        assert_eq!(
            *request,
            Multipart {
                envelope: Vec::new(),
                body: vec![Bytes::from_static(b"hi")]
            }
        );
    }
}

#[test]
fn an_answer_has_the_envelope_of_its_request() {
    let bytes = [&libzmq()[..104], b"\x01\x01a\x01\x00\x00\x01b"].concat();
    let heard = hear(&bytes, 1000).unwrap();
    let Some(Heard::Request(request)) = heard.last() else {
        panic!("{heard:?}")
    };
    assert_eq!(
        answer_head(&request.envelope, 300),
        b"\x01\x01a\x01\x00\x02\0\0\0\0\0\0\x01\x2c"
    );
}

#[test]
fn other_protocols_and_sockets_are_refused() {
    assert_eq!(refused(b"GET / HTTP/1.1", 99), "no ZMTP greeting");
    let mut old = greeting();
    old[10] = 2;
    assert_eq!(refused(&old[..11], 99), "ZMTP version 2, expected 3");
    let mut curve = greeting();
    curve[12..17].copy_from_slice(b"CURVE");
    assert_eq!(
        refused(&curve, 99),
        "security mechanism \"CURVE\", expected NULL"
    );
    let socket = b"\x0bSocket-Type\0\0\0\x03SUB";
    let refused = Socket::Rep.check_ready(b"READY", socket).unwrap_err();
    assert_eq!(refused.to_string(), "a SUB socket, expected REQ or DEALER");
    assert_eq!(
        Socket::Rep.check_ready(b"READY", &socket[..10]),
        Err(not_ready())
    );
    assert_eq!(Socket::Rep.check_ready(b"READY", b""), Err(not_ready()));
}

/// If commands were allowed within a message, a peer could keep it open forever, a few seconds
/// at a time.
#[test]
fn a_command_does_not_come_between_the_parts_of_a_message() {
    let bytes = [&libzmq()[..104], b"\x01\x01a\x04\x05\x04PING"].concat();
    assert_eq!(
        refused(&bytes, 1000),
        "a command between the parts of a message"
    );
}

#[test]
fn a_huge_length_is_refused_when_it_is_promised() {
    let mut bytes = libzmq()[..104].to_vec();
    bytes.extend(b"\x02\x7f\xff\xff\xff\xff\xff\xff\xff");
    assert_eq!(
        refused(&bytes, 500),
        "a message of 9223372036854775807 bytes or more, expected at most 1000"
    );
    let many = [&libzmq()[..104], &b"\x01\x01x".repeat(99)].concat();
    assert_eq!(refused(&many, 500), "a message of more than 16 parts");
    let several = [
        &libzmq()[..104],
        b"\x03\0\0\0\0\0\0\x03\0",
        &[0; 768],
        b"\x03\0\0\0\0\0\0\x03\0",
    ]
    .concat();
    assert_eq!(
        refused(&several, 5000),
        "a message of 1536 bytes or more, expected at most 1000"
    );
}
