//! ZeroMQ's REQ and REP over TCP: ZMTP 3.0 and 3.1 with the NULL mechanism. Parses a peer's bytes
//! into greeting, commands and messages, and encodes ours, without sockets and clocks.
//! <https://rfc.zeromq.org/spec/23/>, /37/ and /28/.
//!
//! ```text
//! REQ    greeting, READY ─►            ◄─ greeting, READY    REP
//!        delimiter, request ─►         ◄─ delimiter, reply
//! ```

use bytes::{Buf, Bytes, BytesMut};

/// Size of the greeting in bytes: signature, version, mechanism, role, filler.
pub const GREETING_BYTES: usize = 64;

/// Maximum length of the name of a mechanism.
const MECHANISM_BYTES: usize = 20;

/// Maximum number of frames in one message: an envelope of a few hops, the delimiter, the body.
const MOST_FRAMES: usize = 16;

/// Maximum length of a command; libzmq's longest (READY with an identity of 255 bytes) has some 300
/// bytes.
const LONGEST_COMMAND: usize = 4096;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The socket type of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// Sends requests.
    Req,
    /// Sends replies.
    Rep,
}

impl Socket {
    fn name(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Rep => "REP",
        }
    }

    /// Returns the socket types to which this one can connect.
    fn peers(self) -> &'static [&'static str] {
        match self {
            Self::Req => &["REP", "ROUTER"],
            Self::Rep => &["REQ", "DEALER"],
        }
    }

    /// Returns the READY command, which follows the greeting.
    pub fn ready(self) -> Vec<u8> {
        frame(
            COMMAND,
            &[
                b"\x05READY\x0bSocket-Type\0\0\0\x03",
                self.name().as_bytes(),
            ]
            .concat(),
        )
    }

    /// Checks the socket type in the peer's READY command.
    ///
    /// # Errors
    /// Returns [`Violation::Socket`] for an incompatible socket type and [`Violation::Ready`] for
    /// malformed properties.
    pub fn check_ready(self, name: &[u8], mut properties: &[u8]) -> Result<(), Violation> {
        if name != b"READY" {
            return Err(Violation::Ready);
        }
        while !properties.is_empty() {
            let (key, rest) = split(properties, 1).ok_or(Violation::Ready)?;
            let (value, rest) = split(rest, 4).ok_or(Violation::Ready)?;
            if key.eq_ignore_ascii_case(b"Socket-Type") {
                let wanted = self.peers();
                if wanted.iter().any(|peer| peer.as_bytes() == value) {
                    return Ok(());
                }
                return Err(Violation::Socket {
                    found: String::from_utf8_lossy(value).into_owned(),
                    wanted,
                });
            }
            properties = rest;
        }
        Err(Violation::Ready)
    }
}

/// The reason why a connection must be closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The peer does not speak ZeroMQ.
    #[error("no ZMTP greeting")]
    Signature,
    /// The peer uses a protocol version from before 2013.
    #[error("ZMTP version {0}, 3 is needed")]
    Version(u8),
    /// The peer uses another security mechanism: PLAIN, CURVE or GSSAPI.
    #[error("security mechanism {0:?}, NULL is needed")]
    Mechanism(String),
    /// The peer's socket type is incompatible with this one.
    #[error("a {found} socket, {} is needed", wanted.join(" or "))]
    Socket {
        /// The peer's socket type.
        found: String,
        /// The compatible socket types.
        wanted: &'static [&'static str],
    },
    /// The peer sent something other than READY, or a malformed READY.
    #[error("no READY command after the greeting")]
    Ready,
    /// A frame has reserved flags, or a command continues in another frame.
    #[error("frame flags {0:#04x}")]
    Flags(u8),
    /// A command arrived in the middle of a message.
    #[error("a command between the parts of a message")]
    Interleaved,
    /// A message is too long.
    #[error("a message of {found} bytes or more, at most {most} are taken")]
    Long {
        /// Length of the message as far as it is known, in bytes.
        found: u64,
        /// The limit in bytes.
        most: usize,
    },
    /// A command is too long; the value is its length in bytes.
    #[error("a command of {0} bytes")]
    LongCommand(u64),
    /// A message has too many frames.
    #[error("a message of more than {MOST_FRAMES} parts")]
    Parts,
}

/// One message with its envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Frames before the empty delimiter, which the reply to a request has to repeat; a reply has
    /// none.
    pub envelope: Vec<Bytes>,
    /// Frames after the delimiter; exactly one for policy clients and servers.
    pub body: Vec<Bytes>,
}

/// A parsed part of the peer's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The peer's greeting is compatible.
    Greeting,
    /// Name and data of a command.
    Command(Bytes, Bytes),
    /// A complete message.
    Request(Request),
}

/// Parses the stream of one peer.
#[derive(Debug)]
pub struct Reader {
    most_bytes: usize,
    is_greeted: bool,
    /// Frames of the incomplete message, and their total size.
    frames: Vec<Bytes>,
    bytes: usize,
}

struct Head {
    flags: u8,
    /// Size of the frame header in bytes.
    width: usize,
    length: u64,
}

impl Reader {
    /// Creates a reader that accepts messages of at most `most_bytes`.
    pub fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            is_greeted: false,
            frames: Vec::new(),
            bytes: 0,
        }
    }

    /// Changes the maximum size of messages to `most_bytes`.
    pub fn set_most_bytes(&mut self, most_bytes: usize) {
        self.most_bytes = most_bytes;
    }

    /// Returns the number of bytes of the incomplete message that have been parsed, without those
    /// still in the caller's buffer.
    pub fn held(&self) -> usize {
        self.bytes
    }

    /// Parses the next greeting, command or message from `buffer`, if it is complete.
    ///
    /// # Errors
    /// Returns a [`Violation`], after which the connection must be closed.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Heard>, Violation> {
        if !self.is_greeted {
            return self.greeting(buffer);
        }
        while let Some(head) = Head::read(buffer)? {
            self.check(&head)?;
            let length = usize::try_from(head.length).unwrap_or(usize::MAX);
            if buffer.len() - head.width < length {
                return Ok(None);
            }
            buffer.advance(head.width);
            let frame = buffer.split_to(length).freeze();
            if head.flags & COMMAND > 0 {
                return command(&frame).map(Some);
            }
            self.bytes += frame.len();
            self.frames.push(frame);
            if head.flags & MORE == 0 {
                self.bytes = 0;
                return Ok(Some(Heard::Request(request(std::mem::take(
                    &mut self.frames,
                )))));
            }
        }
        Ok(None)
    }

    /// Returns how many bytes `buffer` needs for the next part, as far as that is known.
    pub fn wants(&self, buffer: &[u8]) -> usize {
        match Head::read(buffer) {
            Ok(Some(head)) if self.is_greeted => usize::try_from(head.length)
                .unwrap_or(0)
                .saturating_add(head.width),
            _ => GREETING_BYTES,
        }
    }

    fn greeting(&mut self, buffer: &mut BytesMut) -> Result<Option<Heard>, Violation> {
        if buffer.first().is_some_and(|byte| *byte != 0xff)
            || buffer.get(9).is_some_and(|byte| byte & 1 == 0)
        {
            return Err(Violation::Signature);
        }
        if let Some(major) = buffer.get(10).filter(|major| **major < 3) {
            return Err(Violation::Version(*major));
        }
        if buffer.len() < GREETING_BYTES {
            return Ok(None);
        }
        let greeting = buffer.split_to(GREETING_BYTES);
        let mechanism = &greeting[12..12 + MECHANISM_BYTES];
        let name = mechanism
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        if name != b"NULL" {
            return Err(Violation::Mechanism(
                String::from_utf8_lossy(name).into_owned(),
            ));
        }
        self.is_greeted = true;
        Ok(Some(Heard::Greeting))
    }

    fn check(&self, head: &Head) -> Result<(), Violation> {
        if head.flags & COMMAND > 0 && !self.frames.is_empty() {
            return Err(Violation::Interleaved);
        }
        if head.flags & COMMAND > 0 {
            let is_long = head.length > LONGEST_COMMAND as u64;
            return if is_long {
                Err(Violation::LongCommand(head.length))
            } else {
                Ok(())
            };
        }
        let found = head.length.saturating_add(self.bytes as u64);
        if found > self.most_bytes as u64 {
            return Err(Violation::Long {
                found,
                most: self.most_bytes,
            });
        }
        if self.frames.len() >= MOST_FRAMES {
            Err(Violation::Parts)
        } else {
            Ok(())
        }
    }
}

impl Head {
    fn read(buffer: &[u8]) -> Result<Option<Self>, Violation> {
        let Some(flags) = buffer.first().copied() else {
            return Ok(None);
        };
        if flags > 7 || (flags & COMMAND > 0 && flags & MORE > 0) {
            return Err(Violation::Flags(flags));
        }
        Ok(match flags & LONG {
            0 => buffer.get(1).map(|length| Self {
                flags,
                width: 2,
                length: u64::from(*length),
            }),
            _ => buffer
                .get(1..9)
                .and_then(|bytes| bytes.try_into().ok())
                .map(|bytes| Self {
                    flags,
                    width: 9,
                    length: u64::from_be_bytes(bytes),
                }),
        })
    }
}

fn command(frame: &Bytes) -> Result<Heard, Violation> {
    let length = usize::from(*frame.first().ok_or(Violation::Ready)?);
    if frame.len() <= length {
        return Err(Violation::Ready);
    }
    Ok(Heard::Command(
        frame.slice(1..=length),
        frame.slice(length + 1..),
    ))
}

/// Splits a message at the first empty frame, which ends the envelope. Without an empty frame the
/// envelope is empty.
fn request(mut frames: Vec<Bytes>) -> Request {
    match frames.iter().position(Bytes::is_empty) {
        Some(at) => {
            let body = frames.split_off(at + 1);
            frames.pop();
            Request {
                envelope: frames,
                body,
            }
        }
        None => Request {
            envelope: Vec::new(),
            body: frames,
        },
    }
}

/// Splits off as many bytes as a length prefix of `width` bytes says, and returns them and the
/// rest.
fn split(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let length = bytes
        .get(..width)?
        .iter()
        .fold(0u64, |length, byte| length << 8 | u64::from(*byte));
    bytes[width..].split_at_checked(usize::try_from(length).ok()?)
}

/// Returns our greeting: version 3.1 and the NULL mechanism, the same for both socket types.
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut greeting = [0; GREETING_BYTES];
    greeting[0] = 0xff;
    greeting[8..12].copy_from_slice(&[1, 0x7f, 3, 1]);
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// Returns the answer to a PING with this context.
pub fn pong(context: &[u8]) -> Vec<u8> {
    frame(COMMAND, &[b"\x04PONG".as_slice(), context].concat())
}

/// Returns the bytes before the body of a reply or, with an empty envelope, of a request.
pub fn answer_head(envelope: &[Bytes], body_bytes: usize) -> Vec<u8> {
    let mut head: Vec<u8> = envelope.iter().flat_map(|part| frame(MORE, part)).collect();
    head.extend([MORE, 0]);
    frame_head(0, body_bytes, &mut head);
    head
}

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 9);
    frame_head(flags, body.len(), &mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

fn frame_head(flags: u8, length: usize, bytes: &mut Vec<u8>) {
    match u8::try_from(length) {
        Ok(short) => bytes.extend([flags, short]),
        Err(_) => {
            bytes.push(flags | LONG);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes that libzmq 4.3.5 sends on a REQ socket, up to its first message `hi`.
    fn libzmq() -> Vec<u8> {
        let mut bytes = greeting().to_vec();
        bytes.extend(b"\x04\x26\x05READY\x0bSocket-Type\0\0\0\x03REQ\x08Identity\0\0\0\0");
        bytes.extend(b"\x01\x00\x00\x02hi");
        bytes
    }

    fn hear(bytes: &[u8], step: usize) -> Result<Vec<Heard>, Violation> {
        let (mut reader, mut buffer, mut heard) = (Reader::new(1000), BytesMut::new(), Vec::new());
        for part in bytes.chunks(step) {
            buffer.extend_from_slice(part);
            while let Some(next) = reader.next(&mut buffer)? {
                heard.push(next);
            }
        }
        Ok(heard)
    }

    #[test]
    fn both_sides_say_what_they_are() {
        let ready = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REQ";
        assert_eq!(Socket::Req.ready(), ready);
        Socket::Rep.check_ready(b"READY", &ready[8..]).unwrap();
        let refused = Socket::Req.check_ready(b"READY", &ready[8..]).unwrap_err();
        assert_eq!(refused.to_string(), "a REQ socket, REP or ROUTER is needed");
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
                Request {
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
        assert_eq!(hear(b"GET / HTTP/1.1", 99), Err(Violation::Signature));
        let mut old = greeting();
        old[10] = 2;
        assert_eq!(hear(&old[..11], 99), Err(Violation::Version(2)));
        let mut curve = greeting();
        curve[12..17].copy_from_slice(b"CURVE");
        assert_eq!(
            hear(&curve, 99),
            Err(Violation::Mechanism("CURVE".to_owned()))
        );
        let socket = b"\x0bSocket-Type\0\0\0\x03SUB";
        let refused = Socket::Rep.check_ready(b"READY", socket).unwrap_err();
        assert_eq!(refused.to_string(), "a SUB socket, REQ or DEALER is needed");
        assert_eq!(
            Socket::Rep.check_ready(b"READY", &socket[..10]),
            Err(Violation::Ready)
        );
        assert_eq!(
            Socket::Rep.check_ready(b"READY", b""),
            Err(Violation::Ready)
        );
    }

    /// If commands were allowed within a message, a peer could keep it open forever, a few seconds
    /// at a time.
    #[test]
    fn a_command_does_not_come_between_the_parts_of_a_message() {
        let bytes = [&libzmq()[..104], b"\x01\x01a\x04\x05\x04PING"].concat();
        assert_eq!(hear(&bytes, 1000), Err(Violation::Interleaved));
    }

    #[test]
    fn a_huge_length_is_refused_when_it_is_promised() {
        let mut bytes = libzmq()[..104].to_vec();
        bytes.extend(b"\x02\x7f\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(
            hear(&bytes, 500),
            Err(Violation::Long {
                found: i64::MAX as u64,
                most: 1000
            })
        );
        let many = [&libzmq()[..104], &b"\x01\x01x".repeat(99)].concat();
        assert_eq!(hear(&many, 500), Err(Violation::Parts));
        let several = [
            &libzmq()[..104],
            b"\x03\0\0\0\0\0\0\x03\0",
            &[0; 768],
            b"\x03\0\0\0\0\0\0\x03\0",
        ]
        .concat();
        assert_eq!(
            hear(&several, 5000),
            Err(Violation::Long {
                found: 1536,
                most: 1000
            })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_heard_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), step in 1usize..50) {
            let _ = hear(&bytes, step);
            let _ = hear(&[&libzmq()[..104], &bytes].concat(), step);
            let _ = Socket::Req.check_ready(b"READY", &bytes);
        }
    }
}
