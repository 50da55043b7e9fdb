//! Frames: flags, a length of one byte or of eight, and the body.

use crate::WireError;

/// Flag: another frame of the message follows.
pub(super) const MORE: u8 = 1;
/// Flag: the length has eight bytes.
const LONG: u8 = 2;
/// Flag: the frame is a command.
pub(super) const COMMAND: u8 = 4;

/// The header of a frame.
pub(super) struct FrameHead {
    pub(super) flags: u8,
    /// Size of the frame header in bytes.
    pub(super) width: usize,
    pub(super) length: u64,
}

impl FrameHead {
    pub(super) fn read(buffer: &[u8]) -> Result<Option<Self>, WireError> {
        let Some(flags) = buffer.first().copied() else {
            return Ok(None);
        };
        if flags > 7 || (flags & COMMAND > 0 && flags & MORE > 0) {
            return Err(WireError::new(format!("frame flags {flags:#04x}")));
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
pub(super) fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 9);
    frame_head(flags, body.len(), &mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

/// Appends the header of a frame whose body has `length` bytes.
pub(super) fn frame_head(flags: u8, length: usize, bytes: &mut Vec<u8>) {
    match u8::try_from(length) {
        Ok(short) => bytes.extend([flags, short]),
        Err(_) => {
            bytes.push(flags | LONG);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
}
