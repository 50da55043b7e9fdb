//! ZeroMQ's REQ and REP over TCP: ZMTP 3.0 and 3.1 with the NULL mechanism. Parses a peer's bytes
//! into greeting, commands and messages, and encodes ours, without sockets and clocks.
//! <https://rfc.zeromq.org/spec/23/>, /37/ and /28/.
//!
//! ```text
//! REQ    greeting, READY ─►            ◄─ greeting, READY    REP
//!        delimiter, request ─►         ◄─ delimiter, reply
//! ```

use bytes::{Buf, Bytes, BytesMut};

/// Flag: another frame of the message follows.
const MORE: u8 = 1;
/// Flag: the length has eight bytes.
const LONG: u8 = 2;
/// Flag: the frame is a command.
const COMMAND: u8 = 4;

/// Maximum number of frames in one message: an envelope of a few hops, the delimiter, the body.
const MOST_FRAMES: usize = 16;

/// Size of the greeting in bytes: signature, version, mechanism, role, filler.
pub const GREETING_BYTES: usize = 64;

/// Maximum length of the name of a mechanism.
const MECHANISM_BYTES: usize = 20;

/// Maximum length of a command; libzmq's longest (READY with an identity of 255 bytes) has some 300
/// bytes.
const LONGEST_COMMAND: usize = 4096;

/// One message with its envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart {
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
    Request(Multipart),
}

/// Parses the stream of one peer.
#[derive(Debug, Default)]
pub struct Reader {
    most_bytes: usize,
    is_greeted: bool,
    /// Frames of the incomplete message, and their total size.
    frames: Vec<Bytes>,
    bytes: usize,
}

impl Reader {
    /// Creates a reader that accepts messages of at most `most_bytes`.
    pub fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            ..Self::default()
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
    /// Returns the reason, after which the connection must be closed.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Heard>, String> {
        if !self.is_greeted {
            return self.greeting(buffer);
        }
        while let Some(head) = FrameHead::read(buffer)? {
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
        match FrameHead::read(buffer) {
            Ok(Some(head)) if self.is_greeted => usize::try_from(head.length)
                .unwrap_or(0)
                .saturating_add(head.width),
            _ => GREETING_BYTES,
        }
    }

    fn greeting(&mut self, buffer: &mut BytesMut) -> Result<Option<Heard>, String> {
        if buffer.first().is_some_and(|byte| *byte != 0xff)
            || buffer.get(9).is_some_and(|byte| byte & 1 == 0)
        {
            return Err("no ZMTP greeting".to_owned());
        }
        if let Some(major) = buffer.get(10).filter(|major| **major < 3) {
            return Err(format!("ZMTP version {major}, expected 3"));
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
            let name = String::from_utf8_lossy(name);
            return Err(format!("security mechanism {name:?}, expected NULL"));
        }
        self.is_greeted = true;
        Ok(Some(Heard::Greeting))
    }

    fn check(&self, head: &FrameHead) -> Result<(), String> {
        let found = head.length.saturating_add(self.bytes as u64);
        let is_command = head.flags & COMMAND > 0;
        let reason = if is_command && !self.frames.is_empty() {
            "a command between the parts of a message".to_owned()
        } else if is_command && head.length > LONGEST_COMMAND as u64 {
            format!("a command of {} bytes", head.length)
        } else if is_command {
            return Ok(());
        } else if found > self.most_bytes as u64 {
            let most = self.most_bytes;
            format!("a message of {found} bytes or more, expected at most {most}")
        } else if self.frames.len() >= MOST_FRAMES {
            format!("a message of more than {MOST_FRAMES} parts")
        } else {
            return Ok(());
        };
        Err(reason)
    }
}

/// The reason for a peer that sends something other than READY, or a malformed READY.
fn not_ready() -> String {
    "no READY command after the greeting".to_owned()
}

fn command(frame: &Bytes) -> Result<Heard, String> {
    let length = usize::from(*frame.first().ok_or_else(not_ready)?);
    if frame.len() <= length {
        return Err(not_ready());
    }
    Ok(Heard::Command(
        frame.slice(1..=length),
        frame.slice(length + 1..),
    ))
}

/// Splits a message at the first empty frame, which ends the envelope. Without an empty frame the
/// envelope is empty.
fn request(mut frames: Vec<Bytes>) -> Multipart {
    let delimiter = frames.iter().position(Bytes::is_empty);
    let body = frames.split_off(delimiter.map_or(0, |at| at + 1));
    // The delimiter itself, if there is one.
    frames.pop();
    Multipart {
        envelope: frames,
        body,
    }
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
    /// Returns the reason for an incompatible socket type and for malformed properties.
    pub fn check_ready(self, name: &[u8], mut properties: &[u8]) -> Result<(), String> {
        if name != b"READY" {
            return Err(not_ready());
        }
        while !properties.is_empty() {
            let (key, rest) = split(properties, 1).ok_or_else(not_ready)?;
            let (value, rest) = split(rest, 4).ok_or_else(not_ready)?;
            if key.eq_ignore_ascii_case(b"Socket-Type") {
                let wanted = self.peers();
                if wanted.iter().any(|peer| peer.as_bytes() == value) {
                    return Ok(());
                }
                let (found, wanted) = (String::from_utf8_lossy(value), wanted.join(" or "));
                return Err(format!("a {found} socket, expected {wanted}"));
            }
            properties = rest;
        }
        Err(not_ready())
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

/// The header of a frame.
struct FrameHead {
    flags: u8,
    /// Size of the frame header in bytes.
    width: usize,
    length: u64,
}

impl FrameHead {
    fn read(buffer: &[u8]) -> Result<Option<Self>, String> {
        let Some(flags) = buffer.first().copied() else {
            return Ok(None);
        };
        if flags > 7 || (flags & COMMAND > 0 && flags & MORE > 0) {
            return Err(format!("frame flags {flags:#04x}"));
        }
        let (width, length) = match flags & LONG {
            0 => (2, buffer.get(1).copied().map(u64::from)),
            _ => {
                let length = buffer.get(1..).and_then(<[u8]>::first_chunk);
                (9, length.copied().map(u64::from_be_bytes))
            }
        };
        Ok(length.map(|length| Self {
            flags,
            width,
            length,
        }))
    }
}

/// Returns a frame with this body.
fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 9);
    frame_head(flags, body.len(), &mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

/// Appends the header of a frame whose body has `length` bytes.
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
mod tests;
