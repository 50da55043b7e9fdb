//! Bytes on their way to one client. Small pieces are gathered; large values are shared with the table, not copied.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use crate::store::reply::Value;

/// From here on a value is shared: copying less is cheaper than a piece of its own. Bytes.
const SHARE: usize = 4096;

/// Pieces handed to one `writev`.
const AT_ONCE: usize = 32;

/// A queue of bytes.
#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are sent already.
    sent: usize,
    /// Bytes not sent yet.
    length: usize,
}

#[derive(Debug)]
enum Piece {
    Own(Vec<u8>),
    Shared(Value),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Shared(value) => value,
        }
    }
}

impl Outbox {
    /// Bytes not sent yet.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether all is sent.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds a length and the value.
    pub fn text(&mut self, value: &Value) {
        self.length(value.len());
        if value.len() < SHARE {
            return self.raw(value);
        }
        self.length += value.len();
        self.pieces.push_back(Piece::Shared(Value::clone(value)));
    }

    /// Adds a length or a count.
    pub fn length(&mut self, length: usize) {
        self.raw(&(length as u64).to_le_bytes());
    }

    /// Adds bytes.
    pub fn raw(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.length += bytes.len();
        match self.pieces.back_mut() {
            Some(Piece::Own(piece)) => piece.extend_from_slice(bytes),
            _ => self.pieces.push_back(Piece::Own(bytes.to_vec())),
        }
    }

    /// Adds all of another outbox and leaves that one empty. Nothing of `other` has been sent.
    pub fn append(&mut self, other: &mut Outbox) {
        if self.is_empty() {
            return std::mem::swap(self, other);
        }
        self.length += std::mem::take(&mut other.length);
        self.pieces.append(&mut other.pieces);
    }

    /// Offers what there is to `write`, which says how much of it it took, until all is gone or `write` refuses.
    pub fn drain(&mut self, mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<()> {
        while !self.is_empty() {
            let skip = std::iter::once(self.sent).chain(std::iter::repeat(0));
            let slices: Vec<_> =
                self.pieces.iter().zip(skip).take(AT_ONCE).map(|(p, skip)| IoSlice::new(&p.bytes()[skip..])).collect();
            match write(&slices)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                taken => self.advance(taken),
            }
        }
        Ok(())
    }

    fn advance(&mut self, taken: usize) {
        self.length -= taken;
        self.sent += taken;
        while let Some(piece) = self.pieces.front()
            && self.sent >= piece.bytes().len()
        {
            self.sent -= piece.bytes().len();
            self.pieces.pop_front();
        }
    }

    /// All bytes not sent yet.
    #[cfg(test)]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.bytes().iter().copied()).skip(self.sent).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_large_value_is_shared_with_the_table() {
        let value = Value::new(vec![7; SHARE]);
        let mut out = Outbox::default();
        out.text(&value);
        assert_eq!(Value::strong_count(&value), 2);
        out.drain(|slices| Ok(slices.iter().map(|slice| slice.len()).sum())).unwrap();
        assert_eq!((Value::strong_count(&value), out.len()), (1, 0));
    }

    #[test]
    fn what_a_refused_write_left_is_kept() {
        let mut out = Outbox::default();
        out.raw(b"hello");
        let mut first = true;
        let refused =
            out.drain(|_| if std::mem::take(&mut first) { Ok(2) } else { Err(io::ErrorKind::WouldBlock.into()) });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(out.to_bytes(), b"llo");
    }

    proptest! {
        #[test]
        fn short_writes_lose_and_double_nothing(
            sizes in vec(prop_oneof![0..40_usize, SHARE..SHARE + 9], 0..90),
            takes in vec(1..5000_usize, 1..20),
        ) {
            let mut out = Outbox::default();
            for (i, size) in sizes.iter().enumerate() {
                let mut other = Outbox::default();
                other.text(&Value::new(vec![i as u8; *size]));
                out.append(&mut other);
            }
            let wanted = out.to_bytes();
            prop_assert_eq!(wanted.len(), out.len());
            let (mut got, mut takes) = (Vec::<u8>::new(), takes.iter().cycle());
            out.drain(|slices| {
                let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                let taken = all.len().min(*takes.next().expect("it cycles"));
                got.extend(&all[..taken]);
                Ok(taken)
            }).unwrap();
            prop_assert_eq!(got, wanted);
        }
    }
}
